package accept

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
)

// drain runs Drain in a bubble where time passes at once, and returns how long it took.
func drain(t *testing.T, f *fakeRelay, b Budgets, meanwhile func()) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if meanwhile != nil {
			go meanwhile()
		}
		Drain(f, b, f.stop, zerolog.Nop())
		took = time.Since(begun)
	})
	return took
}

var budgets = Budgets{Delay: 3 * time.Second, Shutdown: 30 * time.Second}

func TestDrainWithNothingUnderWay(t *testing.T) {
	f := &fakeRelay{}
	took := drain(t, f, budgets, nil)
	assert.Equal(t, []string{"announce", "drain", "stop listening", "drain", "wait", "abort"}, f.calls)
	assert.Equal(t, budgets.Delay, took, "callers need the delay to learn of it")
}

func TestDrainWaitsForExchanges(t *testing.T) {
	f := &fakeRelay{}
	f.exchanges.Store(3)
	took := drain(t, f, budgets, func() {
		time.Sleep(10 * time.Second)
		f.exchanges.Store(0)
	})
	assert.Equal(t, []string{"announce", "drain", "stop listening", "drain", "wait", "abort"}, f.calls)
	assert.InDelta(t, 10, took.Seconds(), 2*lookEvery.Seconds())
}

// TestDrainTellsTunnelsLate: a WebSocket may go on for as long as the budget allows.
func TestDrainTellsTunnelsLate(t *testing.T) {
	f := &fakeRelay{}
	f.tunnels.Store(2)
	took := drain(t, f, budgets, nil)
	assert.Equal(t, []string{"announce", "drain", "end tunnels", "stop listening", "drain", "wait", "abort"}, f.calls)
	assert.InDelta(t, (budgets.Delay + budgets.Shutdown - tunnelMargin).Seconds(), took.Seconds(), 2*lookEvery.Seconds())
}

func TestDrainEndsInItsBudget(t *testing.T) {
	f := &fakeRelay{stubborn: true, waited: func(ctx context.Context) { <-ctx.Done() }}
	f.exchanges.Store(1)
	f.tunnels.Store(1)
	took := drain(t, f, budgets, nil)
	assert.Equal(t, []string{"announce", "drain", "end tunnels", "stop listening", "drain", "wait", "abort"}, f.calls)
	assert.InDelta(t, (budgets.Delay + budgets.Shutdown).Seconds(), took.Seconds(), 4*lookEvery.Seconds())
}

func TestDrainWithoutBudget(t *testing.T) {
	f := &fakeRelay{stubborn: true}
	f.exchanges.Store(1)
	f.tunnels.Store(1)
	took := drain(t, f, Budgets{}, nil)
	assert.Contains(t, f.calls, "abort")
	assert.Less(t, took, time.Second)
}
