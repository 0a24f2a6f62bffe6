package rabbitmq

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Names of AMQP's field types, as [adapters.Header] has them in Type. Text is
// the type without a name.
const (
	typeBool    = "bool"
	typeInt8    = "int8"
	typeUint8   = "uint8"
	typeInt16   = "int16"
	typeUint16  = "uint16"
	typeInt32   = "int32"
	typeUint32  = "uint32"
	typeInt64   = "int64"
	typeFloat32 = "float32"
	typeFloat64 = "float64"
	typeDecimal = "decimal"
	typeTime    = "timestamp"
	typeBytes   = "bytes"
	typeNil     = "void"
	typeTable   = "table"
	typeArray   = "array"
	// typeProperty marks a property of the message, as Drain reads them.
	typeProperty = "property"
)

// formatField returns the type and text of a field's value. Tables and arrays
// are JSON, in which whole numbers are int64, and what JSON has no form for is
// an object with one member, named $ and the type.
func formatField(v any) (kind string, text []byte) {
	switch v := v.(type) {
	case string:
		return "", []byte(v)
	case []byte:
		return typeBytes, v
	case amqp.Table:
		return typeTable, mustJSON(jsonField(v))
	case []any:
		return typeArray, mustJSON(jsonField(v))
	}
	kind, s := formatScalar(v)
	return kind, []byte(s)
}

func formatScalar(v any) (kind, text string) {
	switch v := v.(type) {
	case bool:
		return typeBool, strconv.FormatBool(v)
	case int8:
		return typeInt8, strconv.FormatInt(int64(v), 10)
	case uint8:
		return typeUint8, strconv.FormatUint(uint64(v), 10)
	case int16:
		return typeInt16, strconv.FormatInt(int64(v), 10)
	case uint16:
		return typeUint16, strconv.FormatUint(uint64(v), 10)
	case int32:
		return typeInt32, strconv.FormatInt(int64(v), 10)
	case uint32:
		return typeUint32, strconv.FormatUint(uint64(v), 10)
	case int64:
		return typeInt64, strconv.FormatInt(v, 10)
	case float32:
		return typeFloat32, strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return typeFloat64, strconv.FormatFloat(v, 'g', -1, 64)
	case amqp.Decimal:
		return typeDecimal, fmt.Sprintf("%de-%d", v.Value, v.Scale)
	case time.Time:
		return typeTime, strconv.FormatInt(v.Unix(), 10)
	case nil:
		return typeNil, ""
	default: // no value that arrived has another type
		return "", fmt.Sprint(v)
	}
}

// parseField is the inverse of formatField.
func parseField(kind string, text []byte) (any, error) {
	switch kind {
	case "":
		return string(text), nil
	case typeBytes:
		return bytes.Clone(text), nil
	case typeTable, typeArray:
		v, err := decodeJSON(text)
		if err != nil {
			return nil, err
		}
		switch v.(type) {
		case amqp.Table:
			if kind == typeTable {
				return v, nil
			}
		case []any:
			if kind == typeArray {
				return v, nil
			}
		}
		return nil, fmt.Errorf("is not of type %s", kind)
	}
	return parseScalar(kind, string(text))
}

func parseScalar(kind, text string) (any, error) {
	switch kind {
	case typeBool:
		return strconv.ParseBool(text)
	case typeInt8:
		n, err := strconv.ParseInt(text, 10, 8)
		return int8(n), err
	case typeUint8:
		n, err := strconv.ParseUint(text, 10, 8)
		return uint8(n), err
	case typeInt16:
		n, err := strconv.ParseInt(text, 10, 16)
		return int16(n), err
	case typeUint16:
		n, err := strconv.ParseUint(text, 10, 16)
		return uint16(n), err
	case typeInt32:
		n, err := strconv.ParseInt(text, 10, 32)
		return int32(n), err
	case typeUint32:
		n, err := strconv.ParseUint(text, 10, 32)
		return uint32(n), err
	case typeInt64:
		return strconv.ParseInt(text, 10, 64)
	case typeFloat32:
		f, err := strconv.ParseFloat(text, 32)
		return float32(f), err
	case typeFloat64:
		return strconv.ParseFloat(text, 64)
	case typeDecimal:
		value, scale, _ := strings.Cut(text, "e-")
		v, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return nil, err
		}
		s, err := strconv.ParseUint(scale, 10, 8)
		return amqp.Decimal{Scale: uint8(s), Value: int32(v)}, err
	case typeTime:
		n, err := strconv.ParseInt(text, 10, 64)
		return time.Unix(n, 0), err
	case typeNil:
		return nil, nil
	default:
		return nil, fmt.Errorf("has the unknown type %q", kind)
	}
}

// jsonField returns what encodes v as JSON.
func jsonField(v any) any {
	switch v := v.(type) {
	case nil, bool, int64:
		return v
	case string:
		if utf8.ValidString(v) {
			return v
		}
		return map[string]any{"$text": base64.StdEncoding.EncodeToString([]byte(v))}
	case []byte:
		return map[string]any{"$" + typeBytes: base64.StdEncoding.EncodeToString(v)}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = jsonField(v[i])
		}
		return list
	case amqp.Table:
		plain := true
		object := make(map[string]any, len(v))
		for key, value := range v {
			plain = plain && utf8.ValidString(key) && !strings.HasPrefix(key, "$")
			object[key] = jsonField(value)
		}
		if plain {
			return object
		}
		// Keys that could be taken for a type, or are no text.
		var pairs []any
		for _, key := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, jsonField(key), object[key])
		}
		return map[string]any{"$" + typeTable: pairs}
	}
	kind, text := formatScalar(v)
	return map[string]any{"$" + kind: text}
}

func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// Maps with text keys, lists, text, booleans and integers always encode.
	_ = enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func decodeJSON(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	return fieldOfJSON(v)
}

func fieldOfJSON(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return nil, fmt.Errorf("has a number that is not an int64: %s", v)
		}
		return n, nil
	case []any:
		for i := range v {
			var err error
			if v[i], err = fieldOfJSON(v[i]); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[string]any:
		return fieldOfObject(v)
	}
	return nil, fmt.Errorf("has a value of type %T", v)
}

func fieldOfObject(object map[string]any) (any, error) {
	if len(object) == 1 {
		for key, value := range object {
			if kind, tagged := strings.CutPrefix(key, "$"); tagged {
				return taggedField(kind, value)
			}
		}
	}
	table := make(amqp.Table, len(object))
	for key, value := range object {
		field, err := fieldOfJSON(value)
		if err != nil {
			return nil, err
		}
		table[key] = field
	}
	return table, nil
}

func taggedField(kind string, value any) (any, error) {
	if pairs, ok := value.([]any); ok && kind == typeTable && len(pairs)%2 == 0 {
		table := make(amqp.Table, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			key, err := fieldOfJSON(pairs[i])
			if err != nil {
				return nil, err
			}
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("has a table with the key %v", key)
			}
			if table[name], err = fieldOfJSON(pairs[i+1]); err != nil {
				return nil, err
			}
		}
		return table, nil
	}
	text, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("has a value of type %q that is not text", kind)
	}
	switch kind {
	case "text", typeBytes:
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		if kind == "text" {
			return string(raw), nil
		}
		return raw, nil
	}
	return parseScalar(kind, text)
}

// fieldSize is what a value takes in a frame, with its type.
func fieldSize(v any) int {
	switch v := v.(type) {
	case nil:
		return 1
	case bool, int8, uint8:
		return 2
	case int16, uint16:
		return 3
	case int, int32, uint32, float32:
		return 5
	case int64, float64, time.Time:
		return 9
	case amqp.Decimal:
		return 6
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case []any:
		n := 5
		for _, e := range v {
			n += fieldSize(e)
		}
		return n
	case amqp.Table:
		return 1 + tableSize(v)
	}
	return 0
}

func tableSize(t amqp.Table) int {
	n := 4
	for key, v := range t {
		n += 1 + len(key) + fieldSize(v)
	}
	return n
}
