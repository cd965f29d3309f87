package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
	"github.com/dovakiin0/agent-sandbox/router/route"
)

// exchange is one request and its answer. It belongs to a client, one at a time. What the sandbox's goroutine reads is set
// before the request is dispatched; u, sentAt, answering, dispatched and abort are guarded by client.mu.
type exchange struct {
	started  time.Time
	until    time.Time // of the total timeout
	headerBy time.Duration
	named    timeoutName

	method    record.Method
	minor     byte
	keepAlive bool
	head      bool // the method is HEAD
	webSocket bool
	safe      bool // GET, HEAD or OPTIONS without a body: may be replayed on a new connection (RFC 9110, section 9.2.2)
	accept    [28]byte

	endpoint *route.Endpoint[*Host]
	zone     route.Zone
	class    *record.Namespace
	port     uint16
	replay   *scratch // holds the request until the answer begins, if it may be replayed

	body   parse.Chunks
	length int64 // of the request body, as parse.Request has it
	left   int64 // of a fixed length
	broken bool  // the sandbox takes no more of the body; the client's goroutine's own

	u          *upstream
	sentAt     time.Time    // when the request, or the first part of it, went out
	active     atomic.Int64 // when a byte last moved, on the watchdog's clock
	rated      int64        // bytes of the upload at the last look, and
	ratedAt    time.Time    // when that was
	dispatched bool
	answering  bool
	abort      record.Reason

	status    int
	up        atomic.Int64 // body bytes, or bytes of a tunnel
	down      int64
	tunnelled bool
	id        word
	requestID word
	path      []byte // for the access log, only when it is on
	agent     []byte // likewise
}

// timeoutName says which limit a 504 is about.
type timeoutName uint8

const (
	byFlag timeoutName = iota
	byCaller
)

// word is a short string kept without allocation; longer ones are not kept at all.
type word struct {
	n uint8
	b [64]byte
}

func (w *word) set(s []byte) {
	w.n = 0
	if len(s) <= len(w.b) {
		w.n = uint8(copy(w.b[:], s))
	}
}

func (w *word) get() []byte { return w.b[:w.n] }

// scratch is the memory that parsing and writing one message needs. It is held for as long as the message is in hand.
type scratch struct {
	req  parse.Request
	resp parse.Response
	addr parse.Address
	out  []byte
	held atomic.Int32
}

const scratchOut = 4 << 10

var scratches = sync.Pool{New: func() any { return &scratch{out: make([]byte, 0, scratchOut)} }}

// getScratch returns a scratch that its caller holds.
func getScratch() *scratch {
	s := scratches.Get().(*scratch)
	s.held.Store(1)
	return s
}

// hold keeps s for one more user. A request that may be replayed has two: who sends it, and its exchange, and either may be
// done first.
func (s *scratch) hold() { s.held.Add(1) }

// put ends one use of s.
func (s *scratch) put() {
	if s.held.Add(-1) > 0 {
		return
	}
	if cap(s.out) > 2*largeBlock {
		s.out = make([]byte, 0, scratchOut)
	}
	scratches.Put(s)
}
