package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// rawPath is the path of a request target as it was sent, neither decoded nor cleaned, in origin form or in absolute
// form (RFC 9112, section 3.2). fasthttp's own URI is cleaned, which would hide "." and "//" from the endpoints.
func rawPath(target []byte) string {
	path := string(target)
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	if strings.HasPrefix(path, "/") {
		return path
	}
	_, authorityAndPath, _ := strings.Cut(path, "://")
	if start := strings.IndexByte(authorityAndPath, '/'); start >= 0 {
		return authorityAndPath[start:]
	}
	return "/"
}

// unquote decodes each %XX once. What is no escape stays as it is, and '+' is no blank.
func unquote(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	decoded := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := hexDigit(s[i+1]), hexDigit(s[i+2])
			if high >= 0 && low >= 0 {
				decoded = append(decoded, byte(high<<4|low))
				i += 2
				continue
			}
		}
		decoded = append(decoded, s[i])
	}
	return string(decoded)
}

// hexDigit is the value of a hexadecimal digit, -1 of any other byte.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// baseDir is the directory that files belong to. It need be neither absolute nor free of symbolic links.
type baseDir string

var errOutside = errors.New("path is outside the base directory")

// resolve returns the absolute path that path means relative to the base directory, symbolic links followed, existing
// or not; errOutside if it leads out. Leading slashes don't count.
//
// This keeps clients from addressing other files by mistake. It is no wall: a command in the sandbox may read whatever
// the runtime may, so nothing is gained by changing a link between this check and the use of the path.
func (b baseDir) resolve(path string) (string, error) {
	base, err := filepath.Abs(string(b))
	if err != nil {
		return "", err
	}
	if base, err = realPath(base); err != nil {
		return "", err
	}
	full, err := realPath(base + "/" + strings.TrimLeft(path, "/"))
	if err != nil {
		return "", err
	}
	if full != base && !strings.HasPrefix(full, strings.TrimSuffix(base, "/")+"/") {
		return "", errOutside
	}
	return full, nil
}

// maxLinks is how many symbolic links one path may follow. The kernel gives up after 40.
const maxLinks = 40

// realPath follows the symbolic links of an absolute path and takes out "." and "..". Unlike filepath.EvalSymlinks it
// accepts paths that don't exist: from the first missing component on they are taken literally. It fails only on NUL
// bytes and on too many links.
func realPath(path string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", syscall.EINVAL
	}
	real, rest, links := "/", path, 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		target, err := os.Readlink(next)
		if err != nil { // no link, or nothing there
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			real = "/"
		}
		rest = target + "/" + rest
	}
	return real, nil
}
