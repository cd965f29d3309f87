package proto

// MaxLabel is the length of the longest DNS label (RFC 1123, section 2.1; RFC 1035, section 2.3.4), in bytes.
const MaxLabel = 63

// ValidLabel reports whether s is a DNS label as Kubernetes names use it: 1 to 63 of a-z, 0-9 and '-', with neither
// end a '-'. Sandbox ids, claim names and namespaces in request headers must be one.
func ValidLabel[T ~string | ~[]byte](s T) bool {
	if len(s) == 0 || len(s) > MaxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// Port reads a decimal TCP port, 1 to 65535, without sign, blanks or leading zeros.
func Port[T ~string | ~[]byte](s T) (uint16, bool) {
	if len(s) == 0 || len(s) > 5 || s[0] == '0' {
		return 0, false
	}
	n := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return uint16(n), n <= 65535
}
