package route

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hold is a Hold of five seconds for known sandboxes and a fraction of one for unknown ones, from now.
func hold() Hold {
	now := time.Now()
	return Hold{Until: now.Add(5 * time.Second), Unknown: now.Add(300 * time.Millisecond)}
}

func starting(name, uid string) *Record {
	r := record(name, uid)
	r.State = StateStarting
	return r
}

func suspended(name, uid string) *Record {
	r := record(name, uid)
	r.State = StateSuspended
	return r
}

func TestWaitEndsWithThePublish(t *testing.T) {
	claimed := record("s1", "u1", ready("10.0.0.1", "p1"))
	claimed.Claim = "c1"
	for name, c := range map[string]struct {
		q      *Query
		before *Record
	}{
		"unknown name":  {byNameQuery("s1"), nil},
		"unknown uid":   {&Query{UID: []byte("u1")}, nil},
		"unknown claim": {&Query{Namespace: []byte("default"), Claim: []byte("c1")}, nil},
		"starting":      {byNameQuery("s1"), starting("s1", "u1")},
		"claim moves":   {&Query{Namespace: []byte("default"), Claim: []byte("c1")}, record("s1", "u1")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(Options[*payload]{})
				table.SetSynced()
				if c.before != nil {
					table.Publish(c.before)
				}
				h := hold()
				h.Unknown = h.Until
				start := time.Now()
				go func() {
					time.Sleep(2 * time.Second)
					table.Publish(claimed)
				}()
				r, err := table.Wait(c.q, h)
				require.NoError(t, err)
				require.Equal(t, Routable, r.Verdict)
				require.Equal(t, 2*time.Second, time.Since(start), "neither later nor by polling")
				require.Zero(t, table.Waiting())
				require.Empty(t, table.held.byKey)
			})
		})
	}
}

func TestWaitReturnsAtOnceWhenWaitingIsNoUse(t *testing.T) {
	finished, expired := record("s1", "u1"), record("s1", "u1")
	finished.State, expired.State = StateFinished, StateExpired
	for _, c := range []struct {
		r    *Record
		want Verdict
	}{
		{record("s1", "u1", ready("10.0.0.1", "p1")), Routable},
		{suspended("s1", "u1"), Suspended}, {finished, Finished}, {expired, Expired}, {nil, Gone},
	} {
		synctest.Test(t, func(t *testing.T) {
			table := newTable(Options[*payload]{})
			table.SetSynced()
			if c.r != nil {
				table.Publish(c.r)
			} else {
				table.Publish(record("s1", "u1"))
				table.Remove("default", "s1")
			}
			start := time.Now()
			r, err := table.Wait(byNameQuery("s1"), hold())
			require.NoError(t, err)
			require.Equal(t, c.want, r.Verdict)
			require.Zero(t, time.Since(start))
		})
	}
}

func TestWaitEndsWithItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		publish *Record
		synced  bool
		want    Verdict
		after   time.Duration
	}{
		"unknown":  {nil, true, Unknown, 300 * time.Millisecond},
		"starting": {starting("s1", "u1"), true, Unready, 5 * time.Second},
		"unsynced": {nil, false, Unsynced, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable(Options[*payload]{})
				if c.publish != nil {
					table.Publish(c.publish)
				}
				if c.synced {
					table.SetSynced()
				}
				start := time.Now()
				r, err := table.Wait(byNameQuery("s1"), hold())
				require.NoError(t, err)
				require.Equal(t, c.want, r.Verdict)
				require.Equal(t, c.after, time.Since(start))
			})
		})
	}
}

// An unknown sandbox that turns up as starting within the short time is held for the long one.
func TestWaitForUnknownThatBecomesKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{})
		table.SetSynced()
		go func() {
			time.Sleep(200 * time.Millisecond)
			table.Publish(starting("s1", "u1"))
			time.Sleep(3 * time.Second)
			table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
		}()
		r, err := table.Wait(byNameQuery("s1"), hold())
		require.NoError(t, err)
		require.Equal(t, Routable, r.Verdict)
	})
}

func TestWaitEndsWithProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{})
		table.SetSynced()
		table.Publish(starting("s1", "u1"))
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			table.Remove("default", "s1")
		}()
		r, err := table.Wait(byNameQuery("s1"), hold())
		require.NoError(t, err)
		require.Equal(t, Gone, r.Verdict)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestWaitEndsWhenTheTableIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{})
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			table.SetSynced()
		}()
		r, err := table.Wait(byNameQuery("s1"), hold())
		require.NoError(t, err)
		require.Equal(t, Unknown, r.Verdict)
		require.Equal(t, time.Second, time.Since(start), "the time for unknown sandboxes is over")
	})
}

func TestWaitThroughAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{})
		table.SetSynced()
		table.Publish(suspended("s1", "u1"))
		go func() {
			time.Sleep(time.Second)
			table.Publish(starting("s1", "u1"))
			time.Sleep(time.Second)
			table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
		}()
		h := hold()
		h.Waking = true
		r, err := table.Wait(byNameQuery("s1"), h)
		require.NoError(t, err)
		require.Equal(t, Routable, r.Verdict)
	})
}

func TestWaitIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{})
		table.Publish(starting("s1", "u1"))
		cancel := make(chan struct{})
		h := hold()
		h.Cancel = cancel
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			close(cancel)
		}()
		r, err := table.Wait(byNameQuery("s1"), h)
		require.ErrorIs(t, err, ErrCanceled)
		require.Equal(t, Unready, r.Verdict)
		require.Equal(t, time.Second, time.Since(start))
		require.Zero(t, table.Waiting())
	})
}

func TestWaitersAreBounded(t *testing.T) {
	fill := func(t *testing.T, table *Table[*payload], name string, n, bytes int) {
		for range n {
			go func() {
				h := hold()
				h.Bytes = bytes
				_, err := table.Wait(byNameQuery(name), h)
				assert.NoError(t, err)
			}()
		}
		synctest.Wait()
	}
	newStarting := func(o Options[*payload]) *Table[*payload] {
		table := newTable(o)
		for _, name := range []string{"s1", "s2", "s3"} {
			table.Publish(starting(name, "u-"+name))
		}
		return table
	}
	t.Run("in number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			table := newStarting(Options[*payload]{MaxHeld: 4})
			for i := range 4 {
				name := fmt.Sprint("u", i)
				table.Publish(starting(name, name))
				fill(t, table, name, 1, 0)
			}
			require.Equal(t, 4, table.Waiting())
			r, err := table.Wait(byNameQuery("s1"), hold())
			require.ErrorIs(t, err, ErrTooManyWaiters)
			require.Equal(t, Unready, r.Verdict)
			time.Sleep(6 * time.Second)
			_, err = table.Wait(byNameQuery("s1"), hold())
			require.NoError(t, err, "there is room again")
		})
	})
	t.Run("for one sandbox", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			table := newStarting(Options[*payload]{MaxHeld: 8})
			fill(t, table, "s1", 2, 0)
			_, err := table.Wait(byNameQuery("s1"), hold())
			require.ErrorIs(t, err, ErrTooManyWaiters)
			_, err = table.Wait(byNameQuery("s2"), hold())
			require.NoError(t, err, "one sandbox cannot take the room of the others")
		})
	})
	t.Run("in bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			table := newStarting(Options[*payload]{MaxBytes: 100})
			fill(t, table, "s1", 1, 60)
			h := hold()
			h.Bytes = 41
			_, err := table.Wait(byNameQuery("s2"), h)
			require.ErrorIs(t, err, ErrTooManyWaiters)
			fill(t, table, "s3", 1, 40)
			require.Equal(t, 2, table.Waiting())
			time.Sleep(6 * time.Second)
			synctest.Wait()
			require.Zero(t, table.held.bytes)
		})
	})
}

// No wake-up is lost however a publish and the waits that need it fall together.
func TestNoWaitMissesItsPublish(t *testing.T) {
	table := newTable(Options[*payload]{MaxHeld: 1000})
	table.SetSynced()
	for i := range 300 {
		name := fmt.Sprint("s", i)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				h := Hold{Until: time.Now().Add(time.Minute), Unknown: time.Now().Add(time.Minute)}
				r, err := table.Wait(byNameQuery(name), h)
				assert.NoError(t, err)
				assert.Equal(t, Routable, r.Verdict)
			})
		}
		all.Go(func() {
			table.Publish(starting(name, "u"))
			table.Publish(record(name, "u", ready("10.0.0.1", "p")))
		})
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
