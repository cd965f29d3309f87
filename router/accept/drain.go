package accept

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// Relay is what has to come to an end.
type Relay interface {
	Announce()                        // say Connection: close in every answer
	Drain()                           // refuse new WebSockets, end idle connections
	Busy() (exchanges, tunnels int64) // what is under way
	EndTunnels()                      // close every WebSocket, between two frames
	Abort()                           // end every connection now
	Wait(context.Context)             // for connections to end
}

// Budgets bound the parts of a drain. Their sum must be less than the pod's grace period.
type Budgets struct {
	Delay    time.Duration // for the news that the router is not ready to reach those who send requests
	Shutdown time.Duration // for exchanges and WebSockets to end by themselves and then by being told
}

// tunnelMargin is the part of the Shutdown budget that is left when WebSockets are told to end, a quarter at most.
const tunnelMargin = 5 * time.Second

// lookEvery is how often a drain looks whether it is done.
const lookEvery = 20 * time.Millisecond

// Drain ends r: announce the end in every answer while the news spreads, let exchanges finish, end the WebSockets that
// are left, and stop listening only when nothing is under way, so that no caller meets a closed port. The caller has made
// the router unready.
func Drain(r Relay, b Budgets, stop func(), log zerolog.Logger) {
	r.Announce()
	time.Sleep(b.Delay)
	r.Drain()
	deadline := time.Now().Add(b.Shutdown)
	margin := min(tunnelMargin, b.Shutdown/4)
	told := false
	for {
		exchanges, tunnels := r.Busy()
		left := time.Until(deadline)
		if exchanges == 0 && tunnels == 0 || left <= 0 {
			log.Info().Int64("exchanges", exchanges).Int64("websockets", tunnels).Msg("drained")
			break
		}
		if !told && tunnels > 0 && left <= margin {
			told = true
			r.EndTunnels()
		}
		time.Sleep(lookEvery)
	}
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Until(deadline), lookEvery))
	r.Drain() // for connections that were accepted meanwhile
	r.Wait(ctx)
	cancel()
	r.Abort()
}
