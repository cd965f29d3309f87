// Package route holds the table that answers, for every request, where a sandbox is. It is read by any number of
// goroutines without locks or allocation and written by one. It knows nothing of Kubernetes, sockets or HTTP.
package route

import "net/netip"

// State says what a route leads to; the controller publishes it.
type State uint8

// States of a sandbox. The words are those of proto.RouteState.
const (
	StateRunning    State = iota // its ready endpoints may be dialled
	StateStarting                // its pod is on the way
	StateSuspending              // new requests wait while the running ones end
	StateSuspended               // it has no pod until it is resumed
	StateFinished                // its pod ended and is not replaced
	StateExpired                 // it passed its shutdown time
)

// States is the number of states, for arrays indexed by State.
const States = int(StateExpired) + 1

var stateNames = [...]string{"Running", "Starting", "Suspending", "Suspended", "Finished", "Expired"}

func (s State) String() string { return nameOf(stateNames[:], int(s)) }

// ParseState finds the state with the given name.
func ParseState(name string) (State, bool) {
	for i, n := range stateNames {
		if n == name {
			return State(i), true
		}
	}
	return 0, false
}

// Condition says whether an endpoint takes traffic. Lower values are preferred.
type Condition uint8

// Conditions of an endpoint.
const (
	Ready       Condition = iota
	Terminating           // on its way out but still serving: used only when no endpoint is ready
	NotReady
)

var conditionNames = [...]string{"Ready", "Terminating", "NotReady"}

func (c Condition) String() string { return nameOf(conditionNames[:], int(c)) }

// Zone compares the zone of an endpoint with the router's own.
type Zone uint8

// Zones as requests are counted by.
const (
	ZoneUnknown Zone = iota // either zone is not known
	ZoneSame
	ZoneCross
)

var zoneNames = [...]string{"unknown", "same", "cross"}

func (z Zone) String() string { return nameOf(zoneNames[:], int(z)) }

// Verdict is the table's answer to a query.
type Verdict uint8

// Verdicts. Wait improves on Unready, Unknown and Unsynced; the others are final for the moment.
const (
	Unknown   Verdict = iota // no such sandbox
	Unsynced                 // no such sandbox yet, and the table is not complete
	Routable                 // Result.Endpoint is set
	Unready                  // known, but starting, suspending, or without a ready endpoint
	Suspended                // known, and has no pod until it is resumed
	Finished                 // known, and its pod ended for good
	Expired                  // known, and past its shutdown time
	Gone                     // deleted a short while ago
)

var verdictNames = [...]string{"Unknown", "Unsynced", "Routable", "Unready", "Suspended", "Finished", "Expired", "Gone"}

func (v Verdict) String() string { return nameOf(verdictNames[:], int(v)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// Query names a sandbox by Name, else by Claim, else by UID alone. The byte views need to be valid only during the
// call they are given to.
type Query struct {
	Namespace []byte     // of the name or the claim; may be empty when only UID is given
	Name      []byte     // name of the Sandbox
	Claim     []byte     // name of the SandboxClaim; not read when Name is given
	UID       []byte     // when given, the sandbox found must have this UID
	Hint      netip.Addr // picks among the sandbox's usable endpoints and is otherwise ignored
}

// Result is the answer to a Query.
type Result[P any] struct {
	Verdict  Verdict
	Sandbox  *Sandbox[P]  // nil when the verdict is Unknown, Unsynced or Gone
	Endpoint *Endpoint[P] // set when the verdict is Routable
	Zone     Zone         // of Endpoint
}

// Record is all that is known of one sandbox, as the writer publishes it. The table keeps its strings.
type Record struct {
	Namespace, Name string // the identity of a route
	UID             string // of the Sandbox; empty when the source does not know it
	Claim           string // name of the claim that the sandbox serves, if any
	State           State
	Since           int64 // when the route came to be, Unix seconds: of two sandboxes with one claim the younger route wins
	Endpoints       []Address
}

// Address is one endpoint of a Record. Its identity is the Sandbox UID, PodUID and Addr together.
type Address struct {
	Addr      netip.Addr
	PodUID    string
	Zone      string
	HintZones []string // zones that should prefer this endpoint
	Condition Condition
}
