package record

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAccessLogModes(t *testing.T) {
	good := Exchange{Status: 200}
	notFound := Exchange{Status: 404, Reason: NotFound}
	theirs := Exchange{Status: 404} // the sandbox's own answer
	broken := Exchange{Status: 503} // likewise
	cut := Exchange{Status: 200, Reason: ClientGone}
	for mode, want := range map[string][]bool{
		"off": {false, false, false, false, false}, "false": {false, false, false, false, false},
		"errors": {false, true, false, true, true},
		"all":    {true, true, true, true, true}, "true": {true, true, true, true, true},
	} {
		var out bytes.Buffer
		a, err := NewAccessLog(&out, mode)
		require.NoError(t, err)
		for i, e := range []Exchange{good, notFound, theirs, broken, cut} {
			out.Reset()
			a.Write(&e)
			assert.Equal(t, want[i], out.Len() > 0, "%s %d", mode, i)
			assert.LessOrEqual(t, bytes.Count(out.Bytes(), []byte("\n")), 1)
		}
		assert.Equal(t, want[4], a.On())
	}
	_, err := NewAccessLog(&bytes.Buffer{}, "some")
	assert.ErrorContains(t, err, "some")
}

func TestAccessLine(t *testing.T) {
	var out bytes.Buffer
	a, err := NewAccessLog(&out, "all")
	require.NoError(t, err)
	a.Write(&Exchange{
		Took: 1500 * time.Microsecond, Method: POST, Status: 502, Reason: UpstreamClosed, Up: 3, Down: 4, Peer: []byte("10.0.0.1"),
		Namespace: "n", ID: []byte("s1"), Path: []byte("/a\x00\"b\n"), RequestID: []byte("r"), Dispatched: true, WebSocket: true,
	})
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
	delete(line, "time")
	assert.Equal(t, map[string]any{
		"method": "POST", "path": "/a\x00\"b\n", "status": 502.0, "duration_ms": 1.5, "client_ip": "10.0.0.1", "sandbox_id": "s1",
		"sandbox_namespace": "n", "bytes_in": 3.0, "bytes_out": 4.0, "request_id": "r", "websocket": true, "reason": "upstream_closed",
		"dispatched": true,
	}, line)
}
