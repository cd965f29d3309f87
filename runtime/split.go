package main

import (
	"errors"
	"strings"
)

var (
	errOpenQuote  = errors.New("no closing quotation")
	errOpenEscape = errors.New("no escaped character")
	errNoCommand  = errors.New("the command is empty")
)

// split breaks a command line into arguments as Python's shlex.split does, which clients quote for: quotes and
// backslashes as in a POSIX shell, but no expansion of any kind, no operators, and '#' starts no comment. A backslash
// between double quotes escapes only '"' and itself.
func split(line string) ([]string, error) {
	var (
		args  []string
		arg   []byte
		inArg bool // tells an empty argument from none
	)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\r', '\n':
			if inArg {
				args, arg, inArg = append(args, string(arg)), arg[:0], false
			}
			continue
		case '\\':
			if i++; i == len(line) {
				return nil, errOpenEscape
			}
			arg = append(arg, line[i])
		case '\'':
			length := strings.IndexByte(line[i+1:], '\'')
			if length < 0 {
				return nil, errOpenQuote
			}
			arg = append(arg, line[i+1:i+1+length]...)
			i += length + 1
		case '"':
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' && i+1 < len(line) && (line[i+1] == '"' || line[i+1] == '\\') {
					i++
				}
				arg = append(arg, line[i])
			}
			if i == len(line) {
				return nil, errOpenQuote
			}
		default:
			arg = append(arg, c)
		}
		inArg = true
	}
	if inArg {
		args = append(args, string(arg))
	}
	if len(args) == 0 {
		return nil, errNoCommand
	}
	return args, nil
}
