package wire

import (
	"bytes"
	"math/rand/v2"
)

// Pattern is n bytes of an endless sequence from position at, a view of at most MaxPattern bytes. The sequence has no short
// period, so lost, doubled and moved bytes show.
func Pattern(at, n int) []byte { return pattern[at%patternPeriod:][:n] }

// MaxPattern is the most bytes that Pattern returns at once.
const MaxPattern = 1 << 20

const patternPeriod = 65521

var pattern = func() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	period := make([]byte, patternPeriod)
	for i := range period {
		period[i] = 'a' + byte(random.IntN(26))
	}
	return bytes.Repeat(period, 2+MaxPattern/patternPeriod)
}()
