//go:build !linux

package relay

// pipe is never used: only raw sockets are spliced.
type pipe struct{}

type noPipes struct{}

var pipes noPipes

func (noPipes) get() *pipe { return nil }
func (noPipes) put(*pipe)  {}

func (c *client) drain(*pipe) error { return errNoRaw }
