package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/valyala/fasthttp"
)

// uploadBuffer is the size of the writes of an upload, in bytes. The parts of a form come in pieces of 4 KiB.
const uploadBuffer = 128 << 10

// errNoFile means that a form has no file part named "file".
var errNoFile = errors.New("no file part")

// upload stores the file part of a form under its file name, which may hold slashes. The file appears whole or not at
// all, and replaces one that is there.
func (s *server) upload(ctx *fasthttp.RequestCtx, _ string) {
	body := bodyOf(ctx)
	// Clients send all of the body before they read the answer. Closing with some of it unread would reset the
	// connection and could take the answer away.
	defer io.Copy(io.Discard, body)

	name, content, err := filePart(string(ctx.Request.Header.ContentType()), body)
	switch {
	case err == errNoFile:
		answer(ctx, fasthttp.StatusUnprocessableEntity, detail{[]*invalidField{missing("null", "body", "file")}})
		return
	case err != nil:
		answer(ctx, fasthttp.StatusBadRequest, detail{"There was an error parsing the body"})
		return
	}
	full, err := s.files.resolve(name)
	if err != nil {
		denied(ctx)
		return
	}
	if err := store(full, content); err != nil {
		s.log.Error().Err(err).Msg("upload file")
		answer(ctx, fasthttp.StatusInternalServerError, message{"File upload failed: " + err.Error()})
		return
	}
	answer(ctx, fasthttp.StatusOK, message{"File '" + name + "' uploaded successfully."})
}

// filePart returns the file name and the content of the first file part named "file". It returns errNoFile when there
// is none and other errors when the form is malformed.
func filePart(contentType string, body io.Reader) (name string, content io.Reader, err error) {
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/form-data" {
		return "", nil, errNoFile
	}
	if parameters["boundary"] == "" {
		return "", nil, http.ErrMissingBoundary
	}
	form := multipart.NewReader(body, parameters["boundary"])
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return "", nil, errNoFile
		}
		if err != nil {
			return "", nil, err
		}
		// Part.FileName would drop the directories.
		_, disposition, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name, isFile := disposition["filename"]
		if err == nil && isFile && disposition["name"] == "file" {
			return name, part, nil
		}
	}
}

// store writes content to a temporary file beside path and renames it, parents made as needed. The permissions of a
// replaced file stay.
func store(path string, content io.Reader) (err error) {
	replaced, statErr := os.Stat(path)
	if statErr == nil && replaced.IsDir() {
		return &os.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	// os.CreateTemp would make the file private, whatever the umask.
	temporary := filepath.Join(dir, ".upload-"+rand.Text())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	if err = write(file, content); err == nil && statErr == nil {
		err = file.Chmod(replaced.Mode().Perm())
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func write(file *os.File, content io.Reader) error {
	// Given the file itself, the buffer would leave the copying to it, piece by piece.
	writer := bufio.NewWriterSize(onlyWriter{file}, uploadBuffer)
	if _, err := writer.ReadFrom(content); err != nil {
		return err
	}
	return writer.Flush()
}
