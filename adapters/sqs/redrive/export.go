package redrive

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
)

// Export is one queue with its attributes, as AWS returns them.
type Export struct {
	// Origin says where it comes from, such as a file; empty means AWS itself.
	Origin string
	// URL is the queue's URL. It may be empty if Attributes has QueueArn, as
	// QueueArn may be absent if there is a URL.
	URL string
	// Attributes are those of GetQueueAttributes with AttributeNames All. What
	// was no string in the export stands here as JSON.
	Attributes map[string]string

	kinds map[string]kind // of attributes that were no strings
}

// maxExports bounds what one file holds. An account of that size has other tools.
const maxExports = 100_000

// ParseOne reads a file with one export: {"QueueUrl": ..., "Attributes": ...}.
// What keeps it from being read is in findings, with origin as the queue.
func ParseOne(origin string, data []byte) (export Export, findings []adapters.Finding) {
	r := reader{}
	v, f := parseJSON(data)
	switch {
	case f != nil:
		r.fault(origin, f)
	case v.kind == array:
		r.shape(origin, v, fmt.Sprintf("is an array of %d; one of two files holds one export", len(v.items)),
			"write the one queue's object alone into the file, or give the whole file as the only one")
	case v.kind != object:
		r.shape(origin, v, "is "+string(v.kind)+", not an export", shapeFix)
	default:
		export, _ = r.export(origin, v)
	}
	return export, r.findings
}

// Parse reads a file with one export, an array of exports, or an object that has
// an export for each name or URL. What could not be read is in findings, with
// origin as the queue; the rest is in exports.
func Parse(origin string, data []byte) (exports []Export, findings []adapters.Finding) {
	r := reader{}
	v, f := parseJSON(data)
	if f != nil {
		r.fault(origin, f)
		return nil, r.findings
	}
	add := func(origin, url string, v *value) {
		if v.kind != object {
			r.shape(origin, v, "is "+string(v.kind)+", not an export", shapeFix)
			return
		}
		if e, ok := r.export(origin, v); ok {
			e.URL = cmp.Or(e.URL, url)
			exports = append(exports, e)
		}
	}
	switch {
	case v.kind != array && v.kind != object:
		r.shape(origin, v, "is "+string(v.kind)+", not an export", shapeFix)
	case v.kind == array && len(v.items) == 0, v.kind == object && len(v.keys) == 0:
		r.shape(origin, v, "holds no export", shapeFix)
	case len(v.items) > maxExports || len(v.keys) > maxExports:
		r.shape(origin, v, fmt.Sprintf("holds more than %d exports", maxExports), "split it")
	case v.kind == array:
		for i, item := range v.items {
			add(fmt.Sprintf("%s[%d]", origin, i), "", item)
		}
	case isExport(v):
		add(origin, "", v)
	default:
		for _, key := range v.keys {
			url := ""
			if strings.Contains(key, "://") {
				url = key
			}
			add(fmt.Sprintf("%s[%s]", origin, quote(key)), url, v.members[key])
		}
	}
	return exports, r.findings
}

const shapeFix = `an export is {"QueueUrl": "https://...", "Attributes": {"VisibilityTimeout": "30", ...}}, with what get-queue-attributes --attribute-names All prints`

// reader collects what keeps a file from being read.
type reader struct{ findings []adapters.Finding }

func (r *reader) fault(origin string, f *fault) { r.add("export-json", origin, f) }

func (r *reader) shape(origin string, v *value, message, fix string) {
	r.add("export-shape", origin, &fault{v.line, message, fix})
}

func (r *reader) add(rule, origin string, f *fault) {
	where := origin
	if f.line > 0 {
		where = fmt.Sprintf("%s, line %d,", origin, f.line)
	}
	r.findings = append(r.findings, adapters.Finding{
		Rule: rule, Severity: adapters.SeverityError, Stream: origin, Message: where + " " + f.message, Fix: f.fix,
	})
}

// isExport reports whether an object is meant as one export, and not as several
// by name: members that only an export has, or attributes themselves.
func isExport(v *value) bool {
	for key, member := range v.members {
		if like(key, "QueueUrl") || like(key, "Attributes") || member.kind != object && knownAttributes[key] {
			return true
		}
	}
	return false
}

func like(key, want string) bool {
	return strings.EqualFold(strings.NewReplacer("_", "", "-", "", " ", "").Replace(key), want)
}

func (r *reader) export(origin string, v *value) (Export, bool) {
	e := Export{Origin: origin, Attributes: map[string]string{}, kinds: map[string]kind{}}
	for _, want := range []string{"QueueUrl", "Attributes"} {
		if v.members[want] != nil {
			continue
		}
		for _, key := range v.keys {
			if like(key, want) {
				r.shape(origin, v.members[key], fmt.Sprintf("has the key %s, which is written %s", quote(key), want), "rename it")
				return e, false
			}
		}
	}
	if u := v.members["QueueUrl"]; u != nil {
		if u.kind != text {
			r.shape(origin, u, "has a QueueUrl that is "+string(u.kind)+", not a string", shapeFix)
			return e, false
		}
		e.URL = u.text
	}
	attributes := v.members["Attributes"]
	switch {
	case attributes == nil && slices.ContainsFunc(v.keys, func(k string) bool { return knownAttributes[k] }):
		r.shape(origin, v, "has the attributes themselves where Attributes should be", `put them into an object: {"QueueUrl": "https://...", "Attributes": {...}}`)
		return e, false
	case attributes == nil:
		r.shape(origin, v, "has no Attributes", shapeFix)
		return e, false
	case attributes.kind != object:
		r.shape(origin, attributes, "has Attributes that are "+string(attributes.kind)+", not an object", shapeFix)
		return e, false
	}
	for _, key := range v.keys {
		if knownAttributes[key] && key != "QueueArn" {
			r.shape(origin, v.members[key], fmt.Sprintf("has the attribute %s beside Attributes instead of in it", key), "move it into Attributes")
			return e, false
		}
	}
	for name, a := range attributes.members {
		e.Attributes[name] = a.text
		if a.kind != text {
			e.kinds[name] = a.kind
		}
	}
	return e, true
}

// names returns the names of the attributes in a fixed order.
func (e Export) names() []string { return slices.Sorted(maps.Keys(e.Attributes)) }

// knownAttributes are those of SQS.
var knownAttributes = map[string]bool{
	"ApproximateNumberOfMessages": true, "ApproximateNumberOfMessagesDelayed": true, "ApproximateNumberOfMessagesNotVisible": true,
	"ContentBasedDeduplication": true, "CreatedTimestamp": true, "DeduplicationScope": true, "DelaySeconds": true,
	"FifoQueue": true, "FifoThroughputLimit": true, "KmsDataKeyReusePeriodSeconds": true, "KmsMasterKeyId": true,
	"LastModifiedTimestamp": true, "MaximumMessageSize": true, "MessageRetentionPeriod": true, "Policy": true, "QueueArn": true,
	"ReceiveMessageWaitTimeSeconds": true, "RedriveAllowPolicy": true, "RedrivePolicy": true, "SqsManagedSseEnabled": true,
	"VisibilityTimeout": true,
}
