//go:build !linux

package relay

import "errors"

const rawReads = false

var errNoRaw = errors.New("no raw reads on this system")

func (s *socket) readRaw(reader) error         { return errNoRaw }
func (s *socket) writeRaw([]byte) (int, error) { return 0, errNoRaw }
func (s *socket) peek() outlook                { return silent }

func (s *socket) finished() bool { return false }
