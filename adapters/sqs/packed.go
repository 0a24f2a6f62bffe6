package sqs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/adapters"
)

// packed is the JSON form of all metadata that do not travel as attributes of
// their own. Its keys are sorted, so that equal metadata have equal bytes.
type packed struct {
	Version  int                    `json:"v"`
	Metadata map[string]packedValue `json:"metadata"`
}

// packedValue is a JSON string, or an object where that would lose something.
type packedValue adapters.Header

type packedObject struct {
	Type   string `json:"type,omitempty"`
	Value  string `json:"value,omitempty"`
	Base64 []byte `json:"b64,omitempty"`
}

const packedVersion = 1

func (v packedValue) MarshalJSON() ([]byte, error) {
	switch {
	case !utf8.Valid(v.Value):
		return marshalText(packedObject{Type: v.Type, Base64: v.Value})
	case v.Type != "":
		return marshalText(packedObject{Type: v.Type, Value: string(v.Value)})
	}
	return marshalText(string(v.Value))
}

func (v *packedValue) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		err := json.Unmarshal(data, &s)
		v.Value = []byte(s)
		return err
	}
	var o packedObject
	if len(data) == 0 || data[0] != '{' {
		return fmt.Errorf("a value is neither a string nor an object: %.20s", data)
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	v.Type, v.Value = o.Type, o.Base64
	if o.Base64 == nil {
		v.Value = []byte(o.Value)
	}
	return nil
}

// pack writes headers as one attribute's value; of a key that repeats, the last.
func pack(headers []adapters.Header) string {
	p := packed{packedVersion, make(map[string]packedValue, len(headers))}
	for _, h := range headers {
		p.Metadata[packKey(h.Key)] = packedValue(h)
	}
	text, _ := marshalText(p) // nothing in it can fail
	return string(text)
}

// unpack reads what pack wrote.
func unpack(text string) ([]adapters.Header, error) {
	var p packed
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("packed metadata: %w", err)
	}
	headers := make([]adapters.Header, 0, len(p.Metadata))
	for key, v := range p.Metadata {
		key, err := unpackKey(key)
		if err != nil {
			return nil, fmt.Errorf("packed metadata: key: %w", err)
		}
		v.Key = key
		if v.Type == adapters.TypeSystem { // which only the broker gives
			v.Type = ""
		}
		headers = append(headers, adapters.Header(v))
	}
	return headers, nil
}

// keyBase64 marks a key that JSON cannot hold as it is.
const keyBase64 = "b64:"

func packKey(key string) string {
	if utf8.ValidString(key) && !strings.HasPrefix(key, keyBase64) {
		return key
	}
	return keyBase64 + base64.StdEncoding.EncodeToString([]byte(key))
}

func unpackKey(key string) (string, error) {
	text, marked := strings.CutPrefix(key, keyBase64)
	if !marked {
		return key, nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), err
}

// marshalText is JSON of characters that SQS accepts: the encoder escapes
// control characters, but not the two noncharacters that are no XML.
func marshalText(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	out = bytes.ReplaceAll(out, []byte("\uFFFE"), []byte(`\ufffe`))
	return bytes.ReplaceAll(out, []byte("\uFFFF"), []byte(`\uffff`)), nil
}
