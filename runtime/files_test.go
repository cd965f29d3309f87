package main

import (
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExists(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "a/b", "")
	writeFile(t, s.dir, "50%.txt", "")
	writeFile(t, s.dir, "aA", "")
	writeFile(t, s.dir, "é", "")
	require.NoError(t, os.Symlink("nowhere", s.dir+"/broken"))
	for _, test := range []struct {
		rest, path string
		exists     bool
	}{
		{"", "", true},
		{".", ".", true}, // as Go's client sends it
		{"%2E", ".", true},
		{"a/b", "a/b", true},
		{"a%2Fb", "a/b", true},
		{"a%252Fb", "a/b", true},
		{"/a/b", "/a/b", true},
		{"a//b", "a//b", true},
		{"a/./b", "a/./b", true},
		{"a/../a/b", "a/../a/b", true},
		{"50%25.txt", "50%.txt", true},
		{"a%2541", "aA", true},
		{"%C3%A9", "é", true},
		{"%c3%a9", "é", true},
		{"missing", "missing", false},
		{"a+b", "a+b", false},
		{"a/b/c", "a/b/c", false},
		{"broken", "broken", false},
	} {
		r := s.send(t, "GET", "/exists/"+test.rest, "")
		assert.Equal(t, 200, r.status, test.rest)
		var got struct {
			Path   string
			Exists bool
		}
		require.NoError(t, jsonUnmarshal(r.body, &got), r.body)
		assert.Equal(t, test.path, got.Path, test.rest)
		assert.Equal(t, test.exists, got.Exists, test.rest)
	}
}

func TestPathsOutsideAreDenied(t *testing.T) {
	s := startServer(t)
	require.NoError(t, os.Symlink("/etc", s.dir+"/etc"))
	for _, endpoint := range []string{"/exists/", "/list/", "/download/"} {
		for _, rest := range []string{
			"..%2F..%2Fetc%2Fpasswd", "../../etc/passwd", "%2E%2E", "..", "%2E%2E%2Fetc", "%252E%252E%252Fetc", "/../etc", "//..",
			"x/../../etc", "etc", "etc/passwd", "etc/../passwd", "a%00b",
		} {
			r := s.send(t, "GET", endpoint+rest, "")
			assert.Equal(t, 403, r.status, endpoint+rest)
			assert.JSONEq(t, `{"message":"Access denied"}`, r.body, endpoint+rest)
		}
	}
}

func TestList(t *testing.T) {
	s := startServer(t)
	r := s.send(t, "GET", "/list/", "")
	assert.Equal(t, 200, r.status)
	assert.Equal(t, "[]", r.body, "an empty directory is an empty array")

	writeFile(t, s.dir, "file", "12345")
	writeFile(t, s.dir, "dir/inner", "")
	require.NoError(t, os.Symlink("dir", s.dir+"/link"))
	require.NoError(t, os.Symlink("nowhere", s.dir+"/broken"))
	modified := time.Unix(1700000000, 250e6)
	require.NoError(t, os.Chtimes(s.dir+"/file", modified, modified))

	for _, target := range []string{"/list/", "/list/.", "/list/%2E", "/list/dir%2F.."} {
		r := s.send(t, "GET", target, "")
		require.Equal(t, 200, r.status, target)
		var entries []entry
		require.NoError(t, jsonUnmarshal(r.body, &entries))
		types := map[string]string{}
		for _, e := range entries {
			types[e.Name] = e.Type
			if e.Name == "file" {
				assert.Equal(t, entry{"file", 5, "file", 1700000000.25}, e)
			}
		}
		assert.Equal(t, map[string]string{"file": "file", "dir": "directory", "link": "directory", "broken": "file"}, types, target)
	}
	for _, target := range []string{"/list/file", "/list/missing", "/list/broken"} {
		r := s.send(t, "GET", target, "")
		assert.Equal(t, 404, r.status, target)
		assert.JSONEq(t, `{"message":"Path is not a directory"}`, r.body, target)
	}
}

func TestDownload(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "dir/a file.txt", "content")
	writeFile(t, s.dir, "plain.txt", "")
	modified := time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)
	require.NoError(t, os.Chtimes(s.dir+"/dir/a file.txt", modified, modified))

	r := s.send(t, "GET", "/download/"+url.PathEscape("dir/a file.txt"), "")
	assert.Equal(t, 200, r.status)
	assert.Equal(t, "content", r.body)
	assert.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
	assert.Equal(t, "7", r.header.Get("Content-Length"))
	assert.Equal(t, "attachment; filename*=utf-8''a%20file.txt", r.header.Get("Content-Disposition"))
	assert.Equal(t, "Sat, 03 Feb 2024 04:05:06 GMT", r.header.Get("Last-Modified"))
	etag := r.header.Get("ETag")
	assert.Regexp(t, `^"[0-9a-f-]+"$`, etag)

	writeFile(t, s.dir, "dir/a file.txt", "changed!")
	assert.NotEqual(t, etag, s.send(t, "GET", "/download/dir/a%20file.txt", "").header.Get("ETag"))

	r = s.send(t, "GET", "/download/plain.txt", "")
	assert.Equal(t, 200, r.status)
	assert.Equal(t, "0", r.header.Get("Content-Length"))
	assert.Equal(t, `attachment; filename="plain.txt"`, r.header.Get("Content-Disposition"))
}

func TestDownloadOfWhatIsNoFile(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "dir/file", "")
	require.NoError(t, syscall.Mkfifo(s.dir+"/pipe", 0o600))
	for _, target := range []string{"/download/", "/download/.", "/download/dir", "/download/missing", "/download/pipe", "/download/dir/file/x"} {
		r := s.send(t, "GET", target, "")
		assert.Equal(t, 404, r.status, target)
		assert.JSONEq(t, `{"message":"File not found"}`, r.body, target)
	}
}

func TestDownloadRanges(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "f", "0123456789")
	whole := s.send(t, "GET", "/download/f", "")
	assert.Equal(t, "bytes", whole.header.Get("Accept-Ranges"))
	for _, test := range []struct {
		header      []string
		status      int
		body, reach string
	}{
		{[]string{"Range: bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range: bytes=7-"}, 206, "789", "bytes 7-9/10"},
		{[]string{"Range: bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{[]string{"Range: bytes=8-99"}, 206, "89", "bytes 8-9/10"},
		{[]string{"Range: bytes=2-4", "If-Range: " + whole.header.Get("ETag")}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range: bytes=2-4", `If-Range: "other"`}, 200, "0123456789", ""},
		{[]string{"Range: bytes=0-1,3-4"}, 200, "0123456789", ""},
		{[]string{"Range: lines=1-2"}, 200, "0123456789", ""},
		{[]string{"Range: bytes=10-"}, 416, `{"message":"Range not satisfiable"}`, "bytes */10"},
	} {
		r := s.send(t, "GET", "/download/f", "", test.header...)
		assert.Equal(t, test.status, r.status, "%v", test.header)
		assert.Equal(t, test.body, r.body, "%v", test.header)
		assert.Equal(t, test.reach, r.header.Get("Content-Range"), "%v", test.header)
	}
}
