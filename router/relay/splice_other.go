//go:build !linux

package relay

import "time"

// pipe is never used: only raw sockets are spliced.
type pipe struct{}

type noPipes struct{}

var pipes noPipes

func (noPipes) get() *pipe     { return nil }
func (noPipes) put(*pipe)      {}
func (noPipes) trim(time.Time) {}

func (c *client) drain(*pipe) error { return errNoRaw }
