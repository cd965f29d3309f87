package proto

// Request headers that address a sandbox. Field names compare without regard to case (RFC 9110, section 5.1).
// The router consumes them: none reaches the sandbox.
const (
	HeaderID        = "X-Sandbox-ID"        // name of the Sandbox object, a DNS label
	HeaderClaim     = "X-Sandbox-Claim"     // name of the SandboxClaim, instead of HeaderID
	HeaderNamespace = "X-Sandbox-Namespace" // DNS label, DefaultNamespace when absent
	HeaderPort      = "X-Sandbox-Port"      // 1 to 65535, DefaultPort when absent
	HeaderUID       = "X-Sandbox-UID"       // UID of the Sandbox object
	HeaderPodIP     = "X-Sandbox-Pod-IP"    // a hint among the sandbox's own endpoints, never dialled on the caller's word
	HeaderTimeout   = "X-Sandbox-Timeout"   // seconds, decimal; shortens the operator's limits and never lengthens them
	HeaderToken     = "X-Sandbox-Token"     // the caller's credential
)

// HeaderPrefix is the prefix of every header that belongs to the router. Requests lose them all on the way to the sandbox.
const HeaderPrefix = "X-Sandbox-"

// Response headers of answers that the router makes itself.
const (
	// HeaderDispatched says whether any byte of the request went to the sandbox: "true" or "false".
	// "false" makes a repetition safe whatever the method.
	HeaderDispatched = "X-Sandbox-Dispatched"
	HeaderRequestID  = "X-Request-ID"
)

// Defaults of the addressing headers.
const (
	DefaultNamespace = "default"
	DefaultPort      = 8888
)
