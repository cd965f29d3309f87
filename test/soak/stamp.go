package main

import (
	"bytes"
	"fmt"
	"io"
)

// blockSize is how many bytes of a body carry one stamp.
const blockSize = 1024

// stamp says what every block of a body must say: which sandbox it belongs to and which request. A byte that came from
// anywhere else, or to the wrong place, shows in the first block that it touches.
type stamp struct{ sandbox, serial string }

// block fills buf with the block at index.
func (s stamp) block(buf *[blockSize]byte, index int) {
	line := fmt.Appendf(buf[:0], "%s|%s|%08d|", s.sandbox, s.serial, index)
	for n := len(line); n < blockSize; n *= 2 {
		copy(buf[n:], buf[:n])
	}
}

// write sends size bytes of blocks.
func (s stamp) write(w io.Writer, size int) error {
	var buf [blockSize]byte
	for index := 0; size > 0; index++ {
		s.block(&buf, index)
		n := min(size, blockSize)
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// foreign is the error of bytes that do not carry the stamp.
type foreign struct{ want, got string }

func (f foreign) Error() string { return fmt.Sprintf("wanted %q, got %q", f.want, f.got) }

// check reads to the end and returns how many bytes came. The error is a foreign one if they do not carry the stamp, else
// that of the reader.
func (s stamp) check(r io.Reader) (int, error) {
	var want, got [blockSize]byte
	size := 0
	for index := 0; ; index++ {
		n := 0
		var err error
		for n < blockSize && err == nil { // io.ReadFull would hide whether the end was a proper one
			var m int
			m, err = r.Read(got[n:])
			n += m
		}
		s.block(&want, index)
		if !bytes.Equal(got[:n], want[:n]) {
			return size, foreign{string(want[:64]), string(got[:min(n, 64)])}
		}
		size += n
		if err == io.EOF {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
}
