package parse

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// The fuzz targets compare with net/http: being stricter is fine, but what the router accepts must be accepted there and
// must end at the same byte, or an attacker could hide a message in the difference.

// hopByHop are the fields that no peer of the router may get from the other one.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Http2-Settings", "Proxy-Authorization", "Expect",
}

// unambiguous fails the test when head is not a head that every recipient reads alike, and returns its fields.
func unambiguous(t *testing.T, head []byte) []textField {
	t.Helper()
	if HeadEnd(head) != len(head) {
		t.Fatalf("the head ends at %d of %d: %q", HeadEnd(head), len(head), head)
	}
	for i, c := range head {
		switch {
		case c == 0:
			t.Fatalf("NUL at %d: %q", i, head)
		case c == '\r' && (i+1 == len(head) || head[i+1] != '\n'), c == '\n' && (i == 0 || head[i-1] != '\r'):
			t.Fatalf("bare CR or LF at %d: %q", i, head)
		}
	}
	var fs []textField
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			t.Fatalf("malformed line %q in %q", line, head)
		}
		fs = append(fs, textField{textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")})
	}
	if count(fs, "Content-Length")+count(fs, "Transfer-Encoding") > 1 {
		t.Fatalf("more than one framing: %q", head)
	}
	return fs
}

type textField struct{ name, value string }

func count(fs []textField, name string) (n int) {
	for _, f := range fs {
		if f.name == name {
			n++
		}
	}
	return n
}

// keptInOrder fails the test when out, but for the router's own words, is not what in holds, in its order.
func keptInOrder(t *testing.T, in, out []textField, own ...string) {
	t.Helper()
	for _, f := range out {
		if slices.Contains(own, f.name) {
			continue
		}
		i := slices.Index(in, f)
		if i < 0 {
			t.Fatalf("%q was invented or is out of order", f)
		}
		in = in[i+1:]
	}
}

// allocations is the least number of allocations of several runs: what the runtime does meanwhile does not count.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 5 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

func FuzzRequestHead(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte, trusted, consumed, rename bool) {
		n := HeadEnd(raw)
		if n <= 0 {
			return
		}
		head, r := raw[:n], &Request{}
		if r.Parse(head) != record.OK {
			return
		}
		own := Forwarding{Peer: []byte("10.1.2.3"), Proto: "http", Trusted: trusted, Consumed: consumed}
		if rename {
			own.Host = []byte("10.9.8.7:8888")
		}
		out := r.AppendTo(nil, &own)
		fs := unambiguous(t, out)
		for _, f := range fs {
			if r.WebSocket && (f.name == "Connection" || f.name == "Upgrade") {
				continue
			}
			name := strings.ReplaceAll(f.name, "_", "-")
			if slices.Contains(hopByHop, f.name) || strings.HasPrefix(strings.ToLower(name), "x-sandbox-") {
				t.Fatalf("%s reaches the sandbox: %q", f.name, out)
			}
		}
		for _, name := range []string{"Host", "X-Forwarded-For"} {
			if count(fs, name) != 1 {
				t.Fatalf("%d times %s: %q", count(fs, name), name, out)
			}
		}
		if consumed && count(fs, "Authorization") > 0 {
			t.Fatalf("the router's credential reaches the sandbox: %q", out)
		}
		keptInOrder(t, textFields(head), fs, "Host", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Transfer-Encoding", "Connection", "Upgrade")
		agreesWithNetHTTP(t, r, head)

		// What goes out means the same when it is read again.
		if r.fields.n > MaxFields-8 {
			return // with the router's own there may be too many
		}
		again := &Request{}
		if why := again.Parse(out); why != record.OK {
			t.Fatalf("%s: %q", why, out)
		}
		target := string(r.Target)
		if r.slash {
			target = "/" + target
		}
		if string(again.Method) != string(r.Method) || string(again.Target) != target || again.Length != r.Length ||
			again.WebSocket != r.WebSocket || again.Continue || again.Minor != 1 || !again.KeepAlive {
			t.Fatalf("%q means something else than %q", out, head)
		}
		for _, view := range [][]byte{again.ID, again.Claim, again.Namespace, again.Port, again.UID, again.PodIP, again.Timeout, again.Token} {
			if view != nil {
				t.Fatalf("a routing field reaches the sandbox: %q", out)
			}
		}
		agreesWithNetHTTP(t, again, out)

		dst := make([]byte, 0, len(out))
		if n := allocations(func() {
			r.Parse(head)
			dst = r.AppendTo(dst[:0], &own)
		}); n > 0 {
			t.Fatalf("%v allocations for %q", n, head)
		}
	})
}

func textFields(head []byte) (fs []textField) {
	for _, line := range strings.Split(string(head), "\r\n")[1:] {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fs = append(fs, textField{textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")})
		}
	}
	return fs
}

// agreesWithNetHTTP compares the framing. The target is not compared: net/http refuses some that are passed on as they came.
func agreesWithNetHTTP(t *testing.T, r *Request, head []byte) {
	t.Helper()
	if count(textFields(head), "Trailer") > 0 {
		return // net/http judges its value, the router drops it
	}
	_, rest, _ := bytes.Cut(head, []byte("\r\n"))
	line := string(r.Method) + " / HTTP/1." + string('0'+rune(r.Minor)) + "\r\n"
	theirs, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(line), bytes.NewReader(rest))))
	if err != nil {
		t.Fatalf("net/http: %v: %q", err, head)
	}
	chunked := slices.Equal(theirs.TransferEncoding, []string{"chunked"})
	if chunked != (r.Length == Chunked) || !chunked && theirs.ContentLength != r.Length {
		t.Fatalf("length %d, net/http has %d %v: %q", r.Length, theirs.ContentLength, theirs.TransferEncoding, head)
	}
	if r.Minor == 1 && theirs.Close == r.KeepAlive {
		t.Fatalf("keep-alive %v, net/http has close %v: %q", r.KeepAlive, theirs.Close, head)
	}
	if !strings.EqualFold(theirs.Host, string(r.Host)) && theirs.Host != "" {
		t.Fatalf("host %q, net/http has %q: %q", r.Host, theirs.Host, head)
	}
}

func FuzzResponseHead(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte, bodiless, close bool) {
		n := HeadEnd(raw)
		if n <= 0 {
			return
		}
		head, r := raw[:n], &Response{}
		if !r.Parse(head, bodiless) {
			return
		}
		chunked := r.Length < 0 || bodiless && r.Status >= 200 && r.Status != 204 && r.SaysChunked()
		out := r.AppendTo(nil, chunked, close)
		fs := unambiguous(t, out)
		for _, f := range fs {
			if r.WebSocket && (f.name == "Connection" || f.name == "Upgrade") || close && f == (textField{"Connection", "close"}) {
				continue
			}
			if slices.Contains(hopByHop[:6], f.name) || f.name == "X-Sandbox-Dispatched" {
				t.Fatalf("%s reaches the client: %q", f.name, out)
			}
		}
		if (r.Status < 200 || r.Status == 204) && count(fs, "Content-Length")+count(fs, "Transfer-Encoding") > 0 {
			t.Fatalf("framing without content: %q", out)
		}
		keptInOrder(t, textFields(head), fs, "Transfer-Encoding", "Connection", "Upgrade")
		answerAgrees(t, r, head, bodiless)

		if r.fields.n > MaxFields-8 {
			return
		}
		again := &Response{}
		if !again.Parse(out, bodiless) {
			t.Fatalf("%q became %q, which does not parse", head, out)
		}
		length := r.Length
		if length == UntilClose {
			length = Chunked
		}
		if again.Status != r.Status || again.Length != length || again.WebSocket != r.WebSocket || again.KeepAlive != (!close || r.WebSocket) {
			t.Fatalf("%q means something else than %q", out, head)
		}
		answerAgrees(t, again, out, bodiless)

		dst := make([]byte, 0, len(out))
		if n := allocations(func() {
			r.Parse(head, bodiless)
			dst = r.AppendTo(dst[:0], chunked, close)
		}); n > 0 {
			t.Fatalf("%v allocations for %q", n, head)
		}
	})
}

func answerAgrees(t *testing.T, r *Response, head []byte, bodiless bool) {
	t.Helper()
	if count(textFields(head), "Trailer") > 0 {
		return
	}
	method := "GET"
	if bodiless {
		method = "HEAD"
	}
	theirs, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("net/http: %v: %q", err, head)
	}
	if theirs.StatusCode != r.Status {
		t.Fatalf("status %d, net/http has %d: %q", r.Status, theirs.StatusCode, head)
	}
	if bodiless || r.Status < 200 || r.Status == 204 || r.Status == 304 {
		if theirs.Body != http.NoBody {
			t.Fatalf("net/http expects a body: %q", head)
		}
		return
	}
	chunked := slices.Equal(theirs.TransferEncoding, []string{"chunked"})
	want := r.Length
	if want < 0 {
		want = -1
	}
	if chunked != (r.Length == Chunked) || theirs.ContentLength != want {
		t.Fatalf("length %d, net/http has %d %v: %q", r.Length, theirs.ContentLength, theirs.TransferEncoding, head)
	}
	if r.KeepAlive && theirs.Close {
		t.Fatalf("net/http closes the connection: %q", head)
	}
}

func FuzzChunks(f *testing.F) {
	for _, row := range chunkedBodies {
		f.Add([]byte(notation.Replace(row.body)+"GET /"), uint(len(row.body)/2))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint) {
		if len(body) > 2048 {
			return // beyond it net/http has limits of its own
		}
		var c Chunks
		var data []byte
		used, complete, ok := readAll(&c, string(body), &data)
		theirData, theirEnd, theirErr := readWithNetHTTP(body)
		switch {
		case ok && complete && theirErr != nil:
			t.Fatalf("net/http: %v: %q", theirErr, body)
		case ok && complete && (theirEnd != used || !bytes.Equal(theirData, data)):
			t.Fatalf("ends at %d with %q, net/http at %d with %q: %q", used, data, theirEnd, theirData, body)
		case ok && !complete && theirErr == nil:
			t.Fatalf("not complete, net/http ends at %d: %q", theirEnd, body)
		}
		if !ok {
			return
		}

		// Cut anywhere it is the same body, and without its extras too.
		at := int(cut % uint(len(body)+1))
		var split Chunks
		var splitData, plain []byte
		first, early, ok1 := readAll(&split, string(body[:at]), &splitData)
		last, late, ok2 := readAll(&split, string(body[at:]), &splitData)
		if early {
			last, late = 0, true
		}
		if !ok1 || !ok2 || first+last != used || late != complete || !bytes.Equal(splitData, data) {
			t.Fatalf("cut at %d it is another body: %q", at, body)
		}
		var strip Chunks
		plain, n1, d1, _, ok1 := strip.Strip(plain, body[:at])
		plain, n2, d2, end, ok2 := strip.Strip(plain, body[at:])
		if !ok1 || !ok2 || n1+n2 != used || d1+d2 != len(data) || end != complete {
			t.Fatalf("Strip reads %d+%d with %d+%d of data instead of %d with %d: %q", n1, n2, d1, d2, used, len(data), body)
		}
		var again Chunks
		var plainData []byte
		n, end, ok := readAll(&again, string(plain), &plainData)
		if !ok || end != complete || n != len(plain) || !again.Plain() || !bytes.Equal(plainData, data) {
			t.Fatalf("%q became %q", body, plain)
		}
	})
}

// readWithNetHTTP returns the data of a chunked body and where it ends.
func readWithNetHTTP(body []byte) (data []byte, end int, err error) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	in := bytes.NewReader(append([]byte(head), body...))
	buffered := bufio.NewReader(in)
	r, err := http.ReadRequest(buffered)
	if err != nil {
		return nil, 0, err
	}
	data, err = io.ReadAll(r.Body)
	return data, len(body) - in.Len() - buffered.Buffered(), err
}

func FuzzConnectionTokens(f *testing.F) {
	f.Fuzz(func(t *testing.T, first, second, name string) {
		name = "X-" + name
		for i := range len(name) {
			if !token[name[i]] {
				return // another name than meant, as the colon would come earlier
			}
		}
		head := "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + first + "\r\n" + name + ": v\r\nConnection: " + second + "\r\nX-Kept: v\r\n\r\n"
		r := &Request{}
		if HeadEnd([]byte(head)) != len(head) || r.Parse([]byte(head)) != record.OK || requestKind([]byte(name)) != keep {
			return
		}
		nominated := map[string]bool{}
		for _, value := range []string{first, second} {
			for _, token := range strings.Split(value, ",") {
				nominated[strings.ToLower(strings.Trim(token, " \t"))] = true
			}
		}
		if r.KeepAlive == nominated["close"] {
			t.Fatalf("keep-alive %v: %q", r.KeepAlive, head)
		}
		out := string(r.AppendTo(nil, &Forwarding{Peer: []byte("p"), Proto: "http"}))
		for _, field := range []string{name, "X-Kept"} {
			if kept := strings.Contains(out, "\r\n"+field+": v\r\n"); kept == nominated[strings.ToLower(field)] {
				t.Fatalf("%s kept: %v: %q", field, kept, head)
			}
		}
		if !strings.Contains(out, "\r\nHost: a\r\n") || strings.Contains(strings.ToLower(out), "\r\nconnection:") {
			t.Fatalf("%q became %q", head, out)
		}
	})
}
