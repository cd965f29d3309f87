package proto

// Code names a cause in the "code" field of the router's error answers. Clients branch on it, so values never change.
type Code string

// Codes of the router's error answers.
const (
	CodeInvalidRequest   Code = "invalid_request"       // 400: malformed message or routing header
	CodeUnauthenticated  Code = "unauthenticated"       // 401
	CodeForbidden        Code = "forbidden"             // 403: the credential is not for this sandbox
	CodeSandboxNotFound  Code = "sandbox_not_found"     // 404
	CodeSandboxGone      Code = "sandbox_gone"          // 410: deleted a short while ago, finished or expired
	CodeMethodNotAllowed Code = "method_not_allowed"    // 405: CONNECT and TRACE
	CodeNotImplemented   Code = "not_implemented"       // 501: transfer coding the router does not know
	CodeRequestTimeout   Code = "request_timeout"       // 408: the request came too slowly
	CodeBodyTooLarge     Code = "body_too_large"        // 413
	CodeExpectation      Code = "expectation_failed"    // 417
	CodeTooManyRequests  Code = "too_many_requests"     // 429
	CodeHeaderTooLarge   Code = "header_too_large"      // 431
	CodeDialFailed       Code = "dial_failed"           // 502: no connection, nothing was sent
	CodeUpstreamClosed   Code = "upstream_closed"       // 502: the connection ended before a response
	CodeBadResponse      Code = "bad_response"          // 502: the response is malformed
	CodeSuspended        Code = "sandbox_suspended"     // 503
	CodeStarting         Code = "sandbox_starting"      // 503: not reachable within the hold
	CodeDraining         Code = "router_draining"       // 503
	CodeRouterStarting   Code = "router_starting"       // 503: the route table is not complete yet
	CodeTimeout          Code = "timeout"               // 504
	CodeHTTPVersion      Code = "version_not_supported" // 505
	CodeInternal         Code = "internal_error"        // 500
)

// Detail phrases that published clients match on. Those that end in a colon and a blank take the sandbox id.
const (
	DetailIDRequired       = "X-Sandbox-ID header is required."
	DetailInvalidID        = "Invalid sandbox ID format."
	DetailInvalidNamespace = "Invalid namespace format."
	DetailInvalidPort      = "Invalid port format."
	DetailInvalidPodIP     = "Invalid target IP address."
	DetailCannotConnect    = "Could not connect to the backend sandbox: "
	DetailTimedOut         = "Timed out waiting for the backend sandbox: "
	DetailNoCredential     = "Missing or invalid Authorization header."
	DetailInvalidToken     = "Invalid token."
)

// ErrorBody is the JSON body of every error answer that the router makes.
type ErrorBody struct {
	Detail    string `json:"detail"`
	Code      Code   `json:"code"`
	Retryable bool   `json:"retryable"`
	RequestID string `json:"requestId"`
}
