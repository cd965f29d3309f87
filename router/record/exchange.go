package record

import "time"

// Method is a request method as metrics count it.
type Method uint8

// Methods. All that are not listed count as one.
const (
	OTHER Method = iota
	GET
	HEAD
	OPTIONS
	POST
	PUT
	PATCH
	DELETE
	numMethods
)

var methodNames = [numMethods]string{"OTHER", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}

func (m Method) String() string { return methodNames[m] }

// Safe reports whether m asks for no change (RFC 9110, section 9.2.1).
func (m Method) Safe() bool { return m >= GET && m <= OPTIONS }

// MethodOf finds the method with the given name, which is case-sensitive.
func MethodOf(name []byte) Method {
	for m := GET; m < numMethods; m++ {
		if string(name) == methodNames[m] {
			return m
		}
	}
	return OTHER
}

// Exchange is what is recorded of one request and its answer. The byte fields are valid only during the call.
type Exchange struct {
	Started    time.Time
	Took       time.Duration
	Method     Method
	Status     int // 0: the client left before there was one
	Reason     Reason
	Zone       int // a route.Zone
	Class      *Namespace
	Up, Down   int64 // bytes of the bodies
	Peer       []byte
	Namespace  string
	ID         []byte
	Path       []byte
	UserAgent  []byte
	RequestID  []byte
	Dispatched bool
	WebSocket  bool
}
