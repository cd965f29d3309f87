package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// exists answers whether a path is there. The answer repeats the path as it was received.
func (s *server) exists(ctx *fasthttp.RequestCtx, path string) {
	full, err := s.files.resolve(path)
	if err != nil {
		denied(ctx)
		return
	}
	_, err = os.Stat(full)
	answer(ctx, fasthttp.StatusOK, struct {
		Path   string `json:"path"`
		Exists bool   `json:"exists"`
	}{path, err == nil})
}

// entry is one file of a directory.
type entry struct {
	Name    string  `json:"name"`
	Size    int64   `json:"size"`     // bytes
	Type    string  `json:"type"`     // "directory", or "file" for all else: clients know no other
	ModTime float64 `json:"mod_time"` // seconds since 1970
}

// list answers the entries of a directory in the order in which the file system gives them.
func (s *server) list(ctx *fasthttp.RequestCtx, path string) {
	full, err := s.files.resolve(path)
	if err != nil {
		denied(ctx)
		return
	}
	if info, err := os.Stat(full); err != nil || !info.IsDir() {
		answer(ctx, fasthttp.StatusNotFound, message{"Path is not a directory"})
		return
	}
	entries, err := readDir(full)
	if err != nil {
		s.log.Error().Err(err).Msg("list files")
		answer(ctx, fasthttp.StatusInternalServerError, message{"List files failed: " + err.Error()})
		return
	}
	answer(ctx, fasthttp.StatusOK, entries)
}

func readDir(path string) ([]entry, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil { // a link that leads nowhere is listed as what it is
			info, err = os.Lstat(filepath.Join(path, name))
		}
		if errors.Is(err, fs.ErrNotExist) { // removed since the directory was read
			continue
		}
		if err != nil {
			return nil, err
		}
		e := entry{Name: name, Size: info.Size(), Type: "file", ModTime: seconds(info.ModTime())}
		if info.IsDir() {
			e.Type = "directory"
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// seconds since 1970, to the precision of a float64.
func seconds(t time.Time) float64 {
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9
}

// download answers with the content of a regular file, or with one range of it (RFC 9110, section 14).
func (s *server) download(ctx *fasthttp.RequestCtx, path string) {
	full, err := s.files.resolve(path)
	if err != nil {
		denied(ctx)
		return
	}
	// Looked at before it is opened, as opening a named pipe would wait for its writer.
	info, err := os.Stat(full)
	if err != nil || !info.Mode().IsRegular() {
		answer(ctx, fasthttp.StatusNotFound, message{"File not found"})
		return
	}
	file, err := os.Open(full)
	if err != nil {
		s.log.Error().Err(err).Msg("download file")
		answer(ctx, fasthttp.StatusInternalServerError, message{"File download failed: " + err.Error()})
		return
	}
	if err := sendFile(ctx, file); err != nil {
		file.Close()
		s.log.Error().Err(err).Msg("download file")
		answer(ctx, fasthttp.StatusInternalServerError, message{"File download failed: " + err.Error()})
	}
}

// sendFile makes file the body of the response, which closes it. On an error it stays the caller's.
func sendFile(ctx *fasthttp.RequestCtx, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	header := &ctx.Response.Header
	etag := fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), size)
	modified := info.ModTime().UTC().Format(http.TimeFormat)

	start, length := int64(0), size
	if wanted := ctx.Request.Header.Peek(fasthttp.HeaderRange); ctx.IsGet() && isSingleRange(string(wanted)) &&
		isCurrent(string(ctx.Request.Header.Peek(fasthttp.HeaderIfRange)), etag, modified) {
		first, last, err := fasthttp.ParseByteRange(wanted, int(size))
		if err != nil {
			file.Close()
			header.Set(fasthttp.HeaderContentRange, fmt.Sprintf("bytes */%d", size))
			answer(ctx, fasthttp.StatusRequestedRangeNotSatisfiable, message{"Range not satisfiable"})
			return nil
		}
		start, length = int64(first), int64(last-first)+1
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return err
		}
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
		header.Set(fasthttp.HeaderContentRange, fmt.Sprintf("bytes %d-%d/%d", first, last, size))
	}
	header.SetContentType("application/octet-stream")
	header.Set(fasthttp.HeaderAcceptRanges, "bytes")
	header.Set(fasthttp.HeaderETag, etag)
	header.Set(fasthttp.HeaderLastModified, modified)
	header.Set(fasthttp.HeaderContentDisposition, "attachment; "+filenameParameter(filepath.Base(file.Name())))
	// fasthttp hands a plain *os.File to sendfile, and stops at length when the file is longer.
	ctx.SetBodyStream(file, int(length))
	return nil
}

// isSingleRange reports whether a Range field asks for one range of bytes. Others are ignored, as RFC 9110, section
// 14.2, allows.
func isSingleRange(value string) bool {
	return strings.HasPrefix(value, "bytes=") && !strings.Contains(value, ",")
}

// isCurrent evaluates an If-Range field (RFC 9110, section 13.1.5). An absent one holds.
func isCurrent(ifRange, etag, modified string) bool {
	return ifRange == "" || ifRange == etag || ifRange == modified
}

// filenameParameter is the filename parameter of Content-Disposition, in the extended notation (RFC 8187) unless the
// name is plain.
func filenameParameter(name string) string {
	var encoded strings.Builder
	for i := range len(name) {
		c := name[i]
		if '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || strings.IndexByte("-._~", c) >= 0 {
			encoded.WriteByte(c)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", c)
		}
	}
	if encoded.String() == name {
		return `filename="` + name + `"`
	}
	return "filename*=utf-8''" + encoded.String()
}
