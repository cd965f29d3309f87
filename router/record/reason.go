// Package record keeps what happened: the closed set of outcomes, the counters and the access log.
package record

import (
	"net/http"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// Reason is why an exchange ended as it did. The zero value is an exchange that went through.
type Reason uint8

// Reasons. Those up to lastAnswer have an answer of their own; the others are only counted and logged.
const (
	OK Reason = iota

	// The request itself.
	MalformedHead
	BadFraming
	BadChunk
	BadHost
	BadTarget
	MethodNotAllowed
	BadVersion
	UnknownCoding
	BadExpectation
	HeadTooLarge
	BodyTooLarge
	RequestTimeout

	// Its address.
	RepeatedHeader
	TwoNames
	IDRequired
	InvalidID
	InvalidClaim
	InvalidNamespace
	InvalidPort
	InvalidPodIP
	InvalidUID
	InvalidTimeout

	// Its credential.
	NoCredential
	InvalidToken
	Forbidden

	// The sandbox, as the route table knows it.
	NotFound
	Gone
	Finished
	Expired
	Suspended
	Starting
	RouterStarting
	Draining
	TooManyRequests
	TooManyWaiting
	TooManyTunnels

	// The connection to the sandbox.
	DialRefused
	DialUnreachable
	DialTimeout
	UpstreamClosed
	BadResponse
	HeaderTimeout
	TotalTimeout
	lastAnswer

	// Endings without an answer of the router's.
	ClientGone    // the caller left
	ResponseCut   // the response broke after its head was sent
	StreamIdle    // no byte in either direction for the idle limit
	EndpointGone  // the endpoint left the route table
	TunnelIdle    // a WebSocket was silent for its idle limit
	TunnelExpired // a WebSocket reached its lifetime
	TunnelDrained // a WebSocket was ended because the router stops

	numReasons
)

// Answer is how the router tells a caller about a Reason.
type Answer struct {
	Status     int
	Code       proto.Code
	Detail     string // ends in a blank when the sandbox id follows
	RetryAfter int    // seconds; 0 leaves the field out
	Retryable  bool   // the cause may pass, so the same request may be sent again if it was not dispatched
	Close      bool   // the connection ends, because where the next message begins is not certain or not wanted
}

// Answer returns the answer of r. Reasons without one of their own give a 502.
func (r Reason) Answer() *Answer {
	if r >= lastAnswer || r == OK {
		r = UpstreamClosed
	}
	return &answers[r]
}

// String is the value of the label "reason" in metrics and of the field "reason" in the access log.
func (r Reason) String() string {
	if r >= numReasons {
		return "unknown"
	}
	return names[r]
}

// upstream reports whether r is a failure between the router and a sandbox.
func (r Reason) upstream() bool {
	return r >= DialRefused && r <= TotalTimeout || r == ResponseCut || r == StreamIdle || r == EndpointGone
}

func invalid(detail string) Answer {
	return Answer{Status: http.StatusBadRequest, Code: proto.CodeInvalidRequest, Detail: detail}
}

func malformed(status int, code proto.Code, detail string) Answer {
	return Answer{Status: status, Code: code, Detail: detail, Close: true}
}

func later(status int, code proto.Code, detail string) Answer {
	return Answer{Status: status, Code: code, Detail: detail, RetryAfter: 1, Retryable: true}
}

func noConnection() Answer {
	return Answer{Status: http.StatusBadGateway, Code: proto.CodeDialFailed, Detail: proto.DetailCannotConnect, Retryable: true}
}

var answers = [lastAnswer]Answer{
	MalformedHead:    malformed(http.StatusBadRequest, proto.CodeInvalidRequest, "Malformed request head."),
	BadFraming:       malformed(http.StatusBadRequest, proto.CodeInvalidRequest, "Conflicting or malformed Content-Length or Transfer-Encoding."),
	BadChunk:         malformed(http.StatusBadRequest, proto.CodeInvalidRequest, "Malformed chunked body."),
	BadHost:          malformed(http.StatusBadRequest, proto.CodeInvalidRequest, "Missing, repeated or contradicted Host header."),
	BadTarget:        malformed(http.StatusBadRequest, proto.CodeInvalidRequest, "Malformed request target."),
	MethodNotAllowed: malformed(http.StatusMethodNotAllowed, proto.CodeMethodNotAllowed, "CONNECT and TRACE are not forwarded."),
	BadVersion:       malformed(http.StatusHTTPVersionNotSupported, proto.CodeHTTPVersion, "Only HTTP/1.1 and HTTP/1.0 are spoken here."),
	UnknownCoding:    malformed(http.StatusNotImplemented, proto.CodeNotImplemented, "The only transfer coding known here is chunked."),
	BadExpectation:   malformed(http.StatusExpectationFailed, proto.CodeExpectation, "The only expectation known here is 100-continue."),
	HeadTooLarge:     malformed(http.StatusRequestHeaderFieldsTooLarge, proto.CodeHeaderTooLarge, "The request head is over the limit --max-header-bytes."),
	BodyTooLarge:     malformed(http.StatusRequestEntityTooLarge, proto.CodeBodyTooLarge, "The request body is over the limit --max-request-body-bytes."),
	RequestTimeout:   malformed(http.StatusRequestTimeout, proto.CodeRequestTimeout, "The request came too slowly (--client-header-timeout, --client-min-body-rate)."),

	RepeatedHeader:   invalid("A routing header is repeated."),
	TwoNames:         invalid("Name the sandbox by X-Sandbox-ID or by X-Sandbox-Claim, not by both."),
	IDRequired:       invalid(proto.DetailIDRequired),
	InvalidID:        invalid(proto.DetailInvalidID),
	InvalidClaim:     invalid("Invalid sandbox claim format."),
	InvalidNamespace: invalid(proto.DetailInvalidNamespace),
	InvalidPort:      invalid(proto.DetailInvalidPort),
	InvalidPodIP:     invalid(proto.DetailInvalidPodIP),
	InvalidUID:       invalid("Invalid sandbox UID format."),
	InvalidTimeout:   invalid("Invalid timeout format."),

	NoCredential: {Status: http.StatusUnauthorized, Code: proto.CodeUnauthenticated, Detail: proto.DetailNoCredential},
	InvalidToken: {Status: http.StatusUnauthorized, Code: proto.CodeUnauthenticated, Detail: proto.DetailInvalidToken},
	Forbidden:    {Status: http.StatusForbidden, Code: proto.CodeForbidden, Detail: "The credential is not for this sandbox."},

	NotFound:        {Status: http.StatusNotFound, Code: proto.CodeSandboxNotFound, Detail: "Unknown sandbox: "},
	Gone:            {Status: http.StatusGone, Code: proto.CodeSandboxGone, Detail: "The sandbox was deleted: "},
	Finished:        {Status: http.StatusGone, Code: proto.CodeSandboxGone, Detail: "The sandbox has finished: "},
	Expired:         {Status: http.StatusGone, Code: proto.CodeSandboxGone, Detail: "The sandbox has expired: "},
	Suspended:       later(http.StatusServiceUnavailable, proto.CodeSuspended, "The sandbox is suspended: "),
	Starting:        later(http.StatusServiceUnavailable, proto.CodeStarting, "The sandbox is not reachable yet: "),
	RouterStarting:  later(http.StatusServiceUnavailable, proto.CodeRouterStarting, "The router does not know all sandboxes yet."),
	Draining:        later(http.StatusServiceUnavailable, proto.CodeDraining, "The router is shutting down."),
	TooManyRequests: later(http.StatusTooManyRequests, proto.CodeTooManyRequests, "Too many requests or connections at once for the sandbox: "),
	TooManyWaiting:  later(http.StatusTooManyRequests, proto.CodeTooManyRequests, "Too many requests are waiting for sandboxes."),
	TooManyTunnels:  later(http.StatusTooManyRequests, proto.CodeTooManyRequests, "Too many WebSocket connections of this client (--websocket-max-connections-per-client)."),

	DialRefused:     noConnection(),
	DialUnreachable: noConnection(),
	DialTimeout:     noConnection(),
	UpstreamClosed:  {Status: http.StatusBadGateway, Code: proto.CodeUpstreamClosed, Detail: "The sandbox ended the connection before it answered: "},
	BadResponse:     {Status: http.StatusBadGateway, Code: proto.CodeBadResponse, Detail: "Malformed response from the backend sandbox: "},
	HeaderTimeout:   {Status: http.StatusGatewayTimeout, Code: proto.CodeTimeout, Detail: proto.DetailTimedOut},
	TotalTimeout:    {Status: http.StatusGatewayTimeout, Code: proto.CodeTimeout, Detail: proto.DetailTimedOut},
}

var names = [numReasons]string{
	OK: "ok", MalformedHead: "malformed_head", BadFraming: "bad_framing", BadChunk: "bad_chunk", BadHost: "bad_host",
	BadTarget: "bad_target", MethodNotAllowed: "method_not_allowed", BadVersion: "bad_version", UnknownCoding: "unknown_coding",
	BadExpectation: "bad_expectation", HeadTooLarge: "head_too_large", BodyTooLarge: "body_too_large",
	RequestTimeout: "request_timeout", RepeatedHeader: "repeated_header", TwoNames: "two_names", IDRequired: "id_required", InvalidID: "invalid_id",
	InvalidClaim: "invalid_claim", InvalidNamespace: "invalid_namespace", InvalidPort: "invalid_port",
	InvalidPodIP: "invalid_pod_ip", InvalidUID: "invalid_uid", InvalidTimeout: "invalid_timeout",
	NoCredential: "no_credential", InvalidToken: "invalid_token", Forbidden: "forbidden", NotFound: "not_found",
	Gone: "gone", Finished: "finished", Expired: "expired", Suspended: "suspended", Starting: "starting",
	RouterStarting: "router_starting", Draining: "draining", TooManyRequests: "too_many_requests",
	TooManyWaiting: "too_many_waiting", TooManyTunnels: "too_many_tunnels", DialRefused: "dial_refused",
	DialUnreachable: "dial_unreachable", DialTimeout: "dial_timeout", UpstreamClosed: "upstream_closed",
	BadResponse: "bad_response", HeaderTimeout: "header_timeout", TotalTimeout: "total_timeout", ClientGone: "client_gone",
	ResponseCut: "response_cut", StreamIdle: "stream_idle", EndpointGone: "endpoint_gone", TunnelIdle: "tunnel_idle",
	TunnelExpired: "tunnel_expired", TunnelDrained: "tunnel_drained",
}
