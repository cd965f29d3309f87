// Package fleet names the sandboxes of a run: what the requests ask for, where the proxies find it, and how an answer
// shows that it came from the right one.
package fleet

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Max is the number of sandboxes there are.
const Max = 250 * 250

// ID returns the name of sandbox i, as long as a pool of a common name gives them.
func ID(i int) string { return fmt.Sprintf("python-runtime-template-%05d-x7k2p", i) }

// Addr returns the address of sandbox i. Its pod of another generation has another address.
func Addr(i, generation int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(16 + generation%100), byte(i / 250), byte(i%250 + 1)})
}

// MarkSize is the length of a mark.
const MarkSize = 6

// Mark returns what the pod at an address begins its bodies with.
func Mark(addr netip.Addr) (mark [MarkSize]byte) {
	a := addr.As4()
	hex.Encode(mark[:], a[1:])
	return mark
}

// Routes returns the routes file of n sandboxes. generation says which pod each has; nil: the first.
func Routes(n int, generation func(i int) int) []byte {
	var b strings.Builder
	b.WriteString("sandboxes:\n")
	for i := range n {
		g := 0
		if generation != nil {
			g = generation(i)
		}
		fmt.Fprintf(&b, "- {id: %s, uid: sandbox-%d, endpoints: [{address: %s, uid: pod-%d-%d}]}\n", ID(i), i, Addr(i, g), i, g)
	}
	return []byte(b.String())
}

// WriteFile replaces a file at once, so that no reader sees half of it.
func WriteFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
