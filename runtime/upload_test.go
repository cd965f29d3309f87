package main

import (
	"bytes"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// form is the body of a multipart form with one file, and its media type.
func form(t *testing.T, field, filename, content string) (body, contentType string) {
	t.Helper()
	var buffer bytes.Buffer
	writer := multipart.NewWriter(&buffer)
	part, err := writer.CreateFormFile(field, filename)
	require.NoError(t, err)
	_, err = io.WriteString(part, content)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	return buffer.String(), writer.FormDataContentType()
}

func (s testServer) uploadFile(t *testing.T, filename, content string) reply {
	t.Helper()
	body, contentType := form(t, "file", filename, content)
	return s.send(t, "POST", "/upload", body, "Content-Type: "+contentType)
}

func TestUpload(t *testing.T) {
	s := startServer(t)
	require.NoError(t, os.Mkdir(s.dir+"/target", 0o755))
	require.NoError(t, os.Symlink("target", s.dir+"/link"))
	for filename, stored := range map[string]string{
		"a.txt": "a.txt", "deep/er/b.txt": "deep/er/b.txt", "/lead.txt": "lead.txt", "é ü.txt": "é ü.txt", "%41.txt": "%41.txt",
		"x/../c.txt": "c.txt", "link/d.txt": "target/d.txt", `q"uote`: `q"uote`,
	} {
		r := s.uploadFile(t, filename, "content of "+filename)
		assert.Equal(t, 200, r.status, r.body)
		var got message
		require.NoError(t, jsonUnmarshal(r.body, &got))
		assert.Equal(t, "File '"+filename+"' uploaded successfully.", got.Message)
		assert.Equal(t, "content of "+filename, readFile(t, s.dir, stored))
	}
	info, err := os.Stat(s.dir + "/a.txt")
	require.NoError(t, err)
	writeFile(t, s.dir, "ordinary", "")
	ordinary, err := os.Stat(s.dir + "/ordinary")
	require.NoError(t, err)
	assert.Equal(t, ordinary.Mode(), info.Mode(), "an upload is as readable as any new file")
}

func TestUploadReplaces(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "run.sh", "a long first version")
	require.NoError(t, os.Chmod(s.dir+"/run.sh", 0o777))
	require.NoError(t, os.Symlink("run.sh", s.dir+"/link"))
	assert.Equal(t, 200, s.uploadFile(t, "link", "second").status)
	assert.Equal(t, "second", readFile(t, s.dir, "run.sh"))
	info, err := os.Stat(s.dir + "/run.sh")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o777), info.Mode(), "a replaced file keeps its permissions")
	link, err := os.Lstat(s.dir + "/link")
	require.NoError(t, err)
	assert.NotZero(t, link.Mode()&os.ModeSymlink)
}

func TestUploadFailures(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "dir/file", "")
	require.NoError(t, os.Symlink("/etc", s.dir+"/etc"))
	for _, filename := range []string{"../x", "..", "etc/x", "/../x", "a/../../x"} {
		r := s.uploadFile(t, filename, "x")
		assert.Equal(t, 403, r.status, filename)
		assert.JSONEq(t, `{"message":"Access denied"}`, r.body)
	}
	for _, filename := range []string{"", ".", "dir", "dir/file/below"} {
		r := s.uploadFile(t, filename, "x")
		assert.Equal(t, 500, r.status, filename)
		var got message
		require.NoError(t, jsonUnmarshal(r.body, &got))
		assert.True(t, strings.HasPrefix(got.Message, "File upload failed: "), got.Message)
	}
	names, err := os.ReadDir(s.dir + "/dir")
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing is left behind")
}

func TestUploadValidation(t *testing.T) {
	s := startServer(t)
	other, otherType := form(t, "other", "x", "y")
	var value bytes.Buffer
	writer := multipart.NewWriter(&value)
	require.NoError(t, writer.WriteField("file", "no file"))
	require.NoError(t, writer.Close())
	for name, request := range map[string][2]string{
		"no form":       {"x", "text/plain"},
		"no body":       {"", "multipart/form-data; boundary=x"},
		"other field":   {other, otherType},
		"not a file":    {value.String(), writer.FormDataContentType()},
		"no media type": {"x", ""},
	} {
		r := s.send(t, "POST", "/upload", request[0], "Content-Type: "+request[1])
		assert.Equal(t, 422, r.status, name)
		assert.JSONEq(t, `{"detail":[{"type":"missing","loc":["body","file"],"msg":"Field required","input":null}]}`, r.body, name)
	}
	for _, contentType := range []string{"multipart/form-data", "multipart/form-data; boundary=x"} {
		assert.Equal(t, 400, s.send(t, "POST", "/upload", "--x\r\nbroken", "Content-Type: "+contentType).status)
	}
}

func TestUploadTakesTheFirstFileAmongOtherFields(t *testing.T) {
	s := startServer(t)
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	require.NoError(t, writer.WriteField("note", "x"))
	for _, name := range []string{"first", "second"} {
		part, err := writer.CreateFormFile("file", name)
		require.NoError(t, err)
		_, err = io.WriteString(part, name)
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	// Chunked, as clients send a body whose length they don't know.
	response, err := client.Post(s.url+"/upload", writer.FormDataContentType(), io.MultiReader(&body))
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, 200, response.StatusCode)
	assert.Equal(t, "first", readFile(t, s.dir, "first"))
	assert.NoFileExists(t, s.dir+"/second")
}

// A file appears whole or not at all.
func TestUploadThatBreaksOffLeavesTheOldFile(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "f", "old")
	body, contentType := form(t, "file", "f", strings.Repeat("x", 1<<20))
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: "+contentType+
		"\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body[:len(body)/2])
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	s.stop() // after which the request is over
	assert.Equal(t, "old", readFile(t, s.dir, "f"))
	names, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing is left behind")
}

// Neither direction holds a file in memory: the whole process, client included, allocates a small part of its size.
func TestLargeFilesPassInFlatMemory(t *testing.T) {
	const size, bound = 200 << 20, 16 << 20
	s := startServer(t)
	before := totalAlloc()

	reader, writer := io.Pipe()
	upload := multipart.NewWriter(writer)
	go func() {
		part, err := upload.CreateFormFile("file", "large")
		if err == nil {
			_, err = io.CopyN(part, zeros{}, size)
		}
		if err == nil {
			err = upload.Close()
		}
		writer.CloseWithError(err)
	}()
	response, err := client.Post(s.url+"/upload", upload.FormDataContentType(), reader)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)

	response, err = client.Get(s.url + "/download/large")
	require.NoError(t, err)
	defer response.Body.Close()
	assert.EqualValues(t, size, response.ContentLength)
	n, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	assert.EqualValues(t, size, n)
	assert.Less(t, totalAlloc()-before, uint64(bound))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func totalAlloc() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
