package main

import (
	"encoding/json"
	"errors"
	"mime"
	"strings"
)

// invalidField is one entry of the "detail" of a 422 answer, in the shape that FastAPI gave it and clients read.
type invalidField struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"` // "body", then a field name or an offset in bytes
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
}

// missing says that the value at loc is not there. input is what was there instead.
func missing(input string, loc ...any) *invalidField {
	return &invalidField{Type: "missing", Loc: loc, Msg: "Field required", Input: json.RawMessage(input)}
}

// readCommand takes the command out of the body of POST /execute. A media type, if given, must be JSON; so a web page
// of another origin cannot post a command without asking first (a CORS preflight).
func readCommand(mediaType string, body []byte) (command string, invalid *invalidField) {
	if len(body) == 0 {
		return "", missing("null", "body")
	}
	if !isJSON(mediaType) {
		text, _ := json.Marshal(string(body)) // strings always encode
		return "", notObject(text)
	}
	var fields map[string]json.RawMessage
	var malformed *json.SyntaxError
	switch err := json.Unmarshal(body, &fields); {
	case errors.As(err, &malformed):
		return "", &invalidField{
			Type: "json_invalid", Loc: []any{"body", malformed.Offset}, Msg: "JSON decode error", Input: json.RawMessage("{}"),
		}
	case err != nil:
		return "", notObject(body)
	case fields == nil:
		return "", missing("null", "body")
	}
	value, ok := fields["command"]
	if !ok {
		return "", missing(string(body), "body", "command")
	}
	var text *string // nil after a JSON null
	if err := json.Unmarshal(value, &text); err != nil || text == nil {
		return "", &invalidField{
			Type: "string_type", Loc: []any{"body", "command"}, Msg: "Input should be a valid string", Input: value,
		}
	}
	return *text, nil
}

func notObject(input json.RawMessage) *invalidField {
	return &invalidField{
		Type: "model_attributes_type", Loc: []any{"body"},
		Msg: "Input should be a valid dictionary or object to extract fields from", Input: input,
	}
}

// isJSON reports whether a media type is absent, application/json, or has the suffix +json (RFC 6839, section 3.1).
func isJSON(mediaType string) bool {
	if mediaType == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(mediaType)
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}
