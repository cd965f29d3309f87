package relay

import "github.com/dovakiin0/agent-sandbox/router/record"

// Bodies of known length are spliced: the kernel hands their pages from one socket to the other, through a pipe, and no byte is
// copied. Of a body, in bytes:
const (
	spliceMin = 80 << 10 // the least that is worth a pipe: less costs as much as copying it
	spliceEnd = 4 << 10  // the end, which is read all the same, because what stands behind it must be seen with it
)

// pipe keeps a pipe only while bytes flow. The head of an answer, and what came with it, has gone out before its rest is long.
func (u *upstream) pipe() (p *pipe, most int64) {
	if u.left <= spliceEnd {
		u.dropPipe()
		return nil, 0
	}
	if u.via == nil && u.left >= spliceMin && u.client.Load().raw != nil {
		u.via = pipes.get()
	}
	return u.via, u.left - spliceEnd
}

func (u *upstream) dropPipe() {
	if u.via != nil {
		pipes.put(u.via)
		u.via = nil
	}
}

// spliced passes n bytes on that lie in the pipe. false: the client takes no more.
func (u *upstream) spliced(n int) bool {
	c := u.client.Load()
	c.touch()
	u.left -= int64(n)
	c.x.down += int64(n)
	if c.drain(u.via) != nil {
		u.broke = record.ClientGone
		return false
	}
	return true
}
