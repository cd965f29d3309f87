//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// churn lets a third of the changes create a sandbox, a third replace the pod of one, and a third delete one.
type churn struct {
	*fleet
	pods   []string // addresses
	router string
	size   int // sandboxes that stay

	mu       sync.Mutex
	created  []time.Duration // from the API server's answer to the pod's
	replaced []time.Duration
	deleted  int
	late     atomic.Int64 // changes that were skipped, because earlier ones were still under way
}

// most is how many changes may be under way at once.
const most = 256

var http1 = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: most}}

// run makes changes at a fixed rate, whatever they take.
func (c *churn) run(ctx context.Context, rate int, duration time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	slots := make(chan struct{}, most)
	start := time.Now()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if due.Sub(start) > duration {
			break
		}
		time.Sleep(time.Until(due))
		select {
		case slots <- struct{}{}:
		default:
			c.late.Add(1)
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			if err := c.change(ctx, n); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx) // the first failure
}

// change makes change number n. Number 3k creates sandbox size+k, the next one gives a pod to one of those that stay,
// and the last one deletes what was created a while ago.
func (c *churn) change(ctx context.Context, n int) error {
	const age = 100 // a sandbox is deleted so many creations after its own
	k := n / 3
	address := c.pods[k/c.size%len(c.pods)]
	switch n % 3 {
	case 0:
		if err := c.create(ctx, c.size+k, address); err != nil {
			return err
		}
		return c.measure(ctx, c.size+k, address, &c.created)
	case 1:
		if err := c.replace(ctx, k%c.size, address); err != nil {
			return err
		}
		return c.measure(ctx, k%c.size, address, &c.replaced)
	}
	if k < age {
		return nil
	}
	if err := c.delete(ctx, c.size+k-age); err != nil {
		return client.IgnoreNotFound(err) // its creation was left out
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted++
	return nil
}

// measure notes how long it takes from now until a request for sandbox number i is answered by the pod at address. One
// that is under way to a pod which was replaced meanwhile is ended by the router with 502.
func (c *churn) measure(ctx context.Context, i int, address string, times *[]time.Duration) error {
	start := time.Now()
	for {
		status, body, err := c.ask(ctx, name(i))
		switch {
		case err != nil:
			return err
		case status != http.StatusOK && status != http.StatusBadGateway:
			return fmt.Errorf("%s: %d: %s", name(i), status, body)
		}
		if body == address {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*times = append(*times, time.Since(start))
	return nil
}

// ask sends a request for a sandbox.
func (c *churn) ask(ctx context.Context, sandbox string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.router+"/", nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set(proto.HeaderID, sandbox)
	response, err := http1.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (c *churn) changes() int { return len(c.created) + len(c.replaced) + c.deleted }

// done is the rate that was reached.
func (c *churn) done(duration time.Duration) float64 {
	return float64(c.changes()) / duration.Seconds()
}

func (c *churn) report() {
	fmt.Println("| from the API server's answer to the new pod's | n | p50 ms | p90 ms | p99 ms | max ms |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, row := range []struct {
		what  string
		times []time.Duration
	}{{"sandbox created", c.created}, {"pod replaced", c.replaced}} {
		slices.Sort(row.times)
		at := func(q float64) float64 {
			if len(row.times) == 0 {
				return 0
			}
			return row.times[int(q*float64(len(row.times)-1))].Seconds() * 1e3
		}
		fmt.Printf("| %s | %d | %.1f | %.1f | %.1f | %.1f |\n", row.what, len(row.times), at(0.5), at(0.9), at(0.99), at(1))
	}
	if late := c.late.Load(); late > 0 {
		fmt.Printf("\n%d changes were left out: %d were under way already\n", late, most)
	}
}
