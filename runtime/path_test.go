package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a/b": "a/b", "a%2Fb": "a/b", "a%2fb": "a/b", "%2E%2E": "..", "a+b": "a+b", "%C3%A9": "é",
		"%252F": "%2F", "%": "%", "%4": "%4", "%zz": "%zz", "%41%": "A%", "50%25.txt": "50%.txt", "50%.txt": "50%.txt",
	} {
		assert.Equal(t, want, unquote(in), in)
	}
}

func TestRawPath(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a/../b": "/a/../b", "//a": "//a", "/a?b/c": "/a", "/a#b": "/a", "/exists/http://x/y": "/exists/http://x/y",
		"http://host": "/", "http://host/a//b?c": "/a//b", "*": "/",
	} {
		assert.Equal(t, want, rawPath([]byte(in)), in)
	}
}

func TestResolve(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	base := root + "/base"
	require.NoError(t, os.MkdirAll(base+"/dir", 0o755))
	require.NoError(t, os.Mkdir(root+"/base-twin", 0o755))
	for name, target := range map[string]string{
		"inside": "dir", "absolute": base + "/dir", "out": "..", "etc": "/etc", "twin": root + "/base-twin",
		"missing": "nowhere/file", "loop": "loop", "up-and-back": "../base/dir", "chain": "inside",
	} {
		require.NoError(t, os.Symlink(target, base+"/"+name))
	}
	require.NoError(t, os.Symlink(base, root+"/link-to-base"))

	for _, dir := range []baseDir{baseDir(base), baseDir(root + "/link-to-base")} {
		for path, want := range map[string]string{
			"": "", ".": "", "/": "", "./": "", "//": "", "x": "/x", "/x": "/x", "//x/": "/x", "a/b/../c": "/a/c",
			"dir/..": "", "inside": "/dir", "inside/f": "/dir/f", "absolute/f": "/dir/f", "chain/f": "/dir/f",
			"up-and-back": "/dir", "missing": "/nowhere/file", "../base/x": "/x", "out/base/dir": "/dir",
			"...": "/...", "..x": "/..x", `a\..\b`: `/a\..\b`,
		} {
			full, err := dir.resolve(path)
			assert.NoError(t, err, path)
			assert.Equal(t, base+want, full, path)
		}
		for _, path := range []string{
			"..", "../", "../x", "/../x", "dir/../../x", "../base-twin", "../base-twin/x", "twin", "twin/x",
			"out", "out/x", "etc/passwd", "inside/../..", "missing/../../..", "loop", "loop/x", "a\x00b",
		} {
			full, err := dir.resolve(path)
			assert.Error(t, err, "%q gave %s", path, full)
		}
	}
	full, err := baseDir("/").resolve("../etc/../x")
	require.NoError(t, err)
	assert.Equal(t, "/x", full)
}

// A chain of links that is too long for the kernel must not be cut in the middle and handed to it: it would go on from
// there to the outside.
func TestResolveRefusesLongChainsOfLinks(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Symlink("/etc", base+"/0"))
	for i := 1; i <= 2*maxLinks; i++ {
		require.NoError(t, os.Symlink(itoa(i-1), base+"/"+itoa(i)))
		_, err := baseDir(base).resolve(itoa(i) + "/passwd")
		require.Error(t, err, "%d links", i)
	}
}
