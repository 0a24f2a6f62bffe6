package sqsfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// redrivePolicy says when a message goes to which dead letter queue.
type redrivePolicy struct {
	target string // ARN
	max    int    // receives
}

func (q *queue) redrive() (redrivePolicy, bool) {
	text := q.attributes["RedrivePolicy"]
	if text == "" {
		return redrivePolicy{}, false
	}
	p, err := parseRedrive(text)
	return p, err == nil
}

// parseRedrive reads the JSON in a RedrivePolicy. The count may be text.
func parseRedrive(text string) (redrivePolicy, error) {
	refuse := func(reason string) (redrivePolicy, error) {
		return redrivePolicy{}, invalid(text, "RedrivePolicy", reason)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields == nil {
		return refuse("Redrive policy is not a valid JSON map.")
	}
	for key := range fields {
		if key != "deadLetterTargetArn" && key != "maxReceiveCount" {
			return refuse("Redrive policy contains the unknown attribute: " + key + ".")
		}
	}
	for _, key := range []string{"deadLetterTargetArn", "maxReceiveCount"} {
		if _, ok := fields[key]; !ok {
			return refuse("Redrive policy does not contain mandatory attribute: " + key + ".")
		}
	}
	var p redrivePolicy
	if err := json.Unmarshal(fields["deadLetterTargetArn"], &p.target); err != nil || strings.Count(p.target, ":") != 5 {
		return refuse("Invalid value for deadLetterTargetArn.")
	}
	count := string(bytes.Trim(fields["maxReceiveCount"], `"`))
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > 1000 {
		return refuse(fmt.Sprintf("Invalid value for maxReceiveCount: %s, valid values are from 1 to 1000 both inclusive.", count))
	}
	p.max = n
	return p, nil
}

// checkRedrive says what is wrong with a RedrivePolicy for q. Empty removes it.
func (s *Server) checkRedrive(q *queue, text string) error {
	if text == "" {
		return nil
	}
	p, err := parseRedrive(text)
	if err != nil {
		return err
	}
	target := s.findARN(p.target)
	if p.target == q.arn {
		target = q // it may not be there yet
	}
	switch {
	case target == nil: // also in another region or account
		return invalid(text, "RedrivePolicy", "Dead letter target does not exist.")
	case target.fifo != q.fifo:
		return invalid(text, "RedrivePolicy", "Dead-letter queue must be same type of queue as the source.")
	case !target.allows(q):
		return invalid(text, "RedrivePolicy", "Dead letter target does not allow this source queue.")
	}
	return nil
}

// redriveAllowPolicy says which queues may have q as their dead letter queue.
type redriveAllowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

func (q *queue) allows(source *queue) bool {
	text := q.attributes["RedriveAllowPolicy"]
	if text == "" {
		return true
	}
	var p redriveAllowPolicy
	_ = json.Unmarshal([]byte(text), &p) // checked when it was set
	return p.Permission == "allowAll" || p.Permission == "byQueue" && slices.Contains(p.Sources, source.arn)
}

func checkRedriveAllow(text string) error {
	if text == "" {
		return nil
	}
	var p redriveAllowPolicy
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return invalid(text, "RedriveAllowPolicy", "Redrive allow policy is not a valid JSON map.")
	}
	switch p.Permission {
	case "byQueue":
		if n := len(p.Sources); n < 1 || n > 10 {
			return invalid(text, "RedriveAllowPolicy", "sourceQueueArns must have 1 to 10 ARNs.")
		}
	case "allowAll", "denyAll":
		if p.Sources != nil {
			return invalid(text, "RedriveAllowPolicy", "sourceQueueArns is allowed only with byQueue.")
		}
	default:
		return invalid(text, "RedriveAllowPolicy", "redrivePermission must be allowAll, denyAll or byQueue.")
	}
	return nil
}
