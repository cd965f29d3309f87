package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What Python's shlex.split makes of the same lines.
func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		`echo 'hello world'`:             {"echo", "hello world"},
		`sh -c "printf 'a\nb'"`:          {"sh", "-c", `printf 'a\nb'`},
		`a\ b`:                           {"a b"},
		`"a\"b\\c\d$"`:                   {`a"b\c\d$`},
		`'a\b'`:                          {`a\b`},
		`a"b"c'd'`:                       {"abcd"},
		`''`:                             {""},
		`a '' b`:                         {"a", "", "b"},
		`echo #hi`:                       {"echo", "#hi"},
		`a#b`:                            {"a#b"},
		"  x\t\r\ny  ":                   {"x", "y"},
		"é ünï":                          {"é", "ünï"},
		"a\\\nb":                         {"a\nb"},
		"\"a\\\nb\"":                     {"a\\\nb"},
		"x\u00a0y":                       {"x\u00a0y"},
		`\\`:                             {`\`},
		`a|b && c > d`:                   {"a|b", "&&", "c", ">", "d"},
		`$HOME * ~ {1,2}`:                {"$HOME", "*", "~", "{1,2}"},
		`python3 -c "print('a', \"b\")"`: {"python3", "-c", `print('a', "b")`},
	} {
		args, err := split(line)
		assert.NoError(t, err, line)
		assert.Equal(t, want, args, line)
	}
	for line, want := range map[string]error{
		`'abc`: errOpenQuote, `"abc`: errOpenQuote, `a 'b" c`: errOpenQuote, `abc\`: errOpenEscape, `"abc\"`: errOpenQuote,
		``: errNoCommand, " \t\n": errNoCommand,
	} {
		_, err := split(line)
		assert.Equal(t, want, err, line)
	}
}

// Whatever the arguments are, quoted and joined they come back.
func FuzzSplitUndoesQuoting(f *testing.F) {
	f.Add("sh", "-c", `echo "$HOME" 'x' \ #`)
	f.Add("", "'", "\\\n")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		args := []string{a, b, c}
		var line strings.Builder
		for _, arg := range args {
			line.WriteString("'" + strings.ReplaceAll(arg, "'", `'\''`) + "' ")
			_, _ = split(arg) // any line is split or refused
		}
		got, err := split(line.String())
		require.NoError(t, err)
		require.Equal(t, args, got)
	})
}
