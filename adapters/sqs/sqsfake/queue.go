package sqsfake

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is one queue. Server.mu guards it.
type queue struct {
	name       string
	arn        string
	fifo       bool
	attributes map[string]string // as GetQueueAttributes returns them
	tags       map[string]string
	created    time.Time
	modified   time.Time
	purged     time.Time
	messages   []*stored     // in the order in which they are looked at
	changed    chan struct{} // closed, and replaced, when there may be something to receive
	sent       map[dedupKey]sentOnce
}

const fifoSuffix = ".fifo"

// Queue attributes that are numbers, with their ranges.
var ranges = map[string]struct{ low, high, initial int }{
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, maxSize, maxSize},
	"MessageRetentionPeriod":        {60, 14 * 24 * 3600, 4 * 24 * 3600},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	"VisibilityTimeout":             {0, maxVisibility, 30},
	"KmsDataKeyReusePeriodSeconds":  {60, 86400, 300},
}

// Queue attributes that are words of a list. Those with onlyFIFO are unknown to
// standard queues.
var words = map[string]struct {
	values   []string
	onlyFIFO bool
	initial  string
}{
	"ContentBasedDeduplication": {[]string{"true", "false"}, true, "false"},
	"DeduplicationScope":        {[]string{"queue", "messageGroup"}, true, "queue"},
	"FifoThroughputLimit":       {[]string{"perQueue", "perMessageGroupId"}, true, "perQueue"},
	"SqsManagedSseEnabled":      {[]string{"true", "false"}, false, "true"},
}

// Queue attributes that only the service sets.
var computed = []string{
	"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible",
	"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn",
}

type createQueueInput struct {
	QueueName  *string
	Attributes map[string]string
	Tags       map[string]string `json:"tags"`
}

type queueURL struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) createQueue(r request, in createQueueInput) (any, error) {
	name := value(in.QueueName)
	if name == "" {
		return nil, missing("QueueName")
	}
	fifo := in.Attributes["FifoQueue"] == "true"
	switch {
	case fifo && !legalName(name, fifoSuffix):
		return nil, fail("InvalidParameterValue", "The name of a FIFO queue can only include alphanumeric characters, "+
			"hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	case !fifo && !legalName(name, ""):
		return nil, fail("InvalidParameterValue",
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if _, set := in.Attributes["FifoQueue"]; set && !fifo {
		return nil, unknownAttribute("FifoQueue") // AWS knows no value but true
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	wanted := maps.Clone(in.Attributes)
	delete(wanted, "FifoQueue")
	now := time.Now()
	if q := s.queues[name]; q != nil {
		if err := s.checkAttributes(q, wanted); err != nil {
			return nil, err
		}
		for key, v := range wanted {
			if !sameAttribute(key, q.attributes[key], v) {
				return nil, failf("QueueNameExists",
					"A queue already exists with the same name and a different value for attribute %s", key)
			}
		}
		return queueURL{s.url(r, name)}, nil
	}
	if gone, ok := s.deleted[name]; ok && now.Sub(gone) < time.Minute {
		return nil, fail("QueueDeletedRecently",
			"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	q := &queue{
		name: name, arn: s.arn(name), fifo: fifo, attributes: map[string]string{}, tags: map[string]string{},
		created: now, modified: now, changed: make(chan struct{}), sent: map[dedupKey]sentOnce{},
	}
	for key, limits := range ranges {
		if key != "KmsDataKeyReusePeriodSeconds" {
			q.attributes[key] = strconv.Itoa(limits.initial)
		}
	}
	for key, word := range words {
		if fifo || !word.onlyFIFO {
			q.attributes[key] = word.initial
		}
	}
	if fifo {
		q.attributes["FifoQueue"] = "true"
	}
	if err := s.checkAttributes(q, wanted); err != nil {
		return nil, err
	}
	q.set(wanted)
	maps.Copy(q.tags, in.Tags)
	s.queues[name] = q
	return queueURL{s.url(r, name)}, nil
}

// sameAttribute compares policies as JSON, everything else as text.
func sameAttribute(name, a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	switch name {
	case "RedrivePolicy":
		x, err1 := parseRedrive(a)
		y, err2 := parseRedrive(b)
		return err1 == nil && err2 == nil && x == y
	case "Policy", "RedriveAllowPolicy":
		return canonical(a) == canonical(b)
	}
	return false
}

func canonical(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	b, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(b)
}

func unknownAttribute(name string) *apiError {
	return failf("InvalidAttributeName", "Unknown Attribute %s.", name)
}

// checkAttributes says what is wrong with new values of attributes.
func (s *Server) checkAttributes(q *queue, wanted map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		v := wanted[name]
		limits, number := ranges[name]
		word, isWord := words[name]
		switch {
		case number:
			n, err := strconv.Atoi(v)
			if err != nil || n < limits.low || n > limits.high {
				return failf("InvalidAttributeValue", "Invalid value for the parameter %s.", name)
			}
		case isWord && word.onlyFIFO && !q.fifo:
			return unknownAttribute(name)
		case isWord:
			if !slices.Contains(word.values, v) {
				return failf("InvalidAttributeValue", "Invalid value for the parameter %s.", name)
			}
		case name == "FifoQueue" && q.fifo && v == "true":
		case name == "RedrivePolicy":
			if err := s.checkRedrive(q, v); err != nil {
				return err
			}
		case name == "RedriveAllowPolicy":
			if err := checkRedriveAllow(v); err != nil {
				return err
			}
		case name == "Policy":
			if v != "" && !json.Valid([]byte(v)) {
				return failf("InvalidAttributeValue", "Invalid value for the parameter %s.", name)
			}
		case name == "KmsMasterKeyId":
		default:
			return unknownAttribute(name)
		}
	}
	merged := maps.Clone(q.attributes)
	maps.Copy(merged, wanted)
	if merged["FifoThroughputLimit"] == "perMessageGroupId" && merged["DeduplicationScope"] != "messageGroup" {
		return fail("InvalidAttributeValue",
			"The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup.")
	}
	return nil
}

// set takes values that were checked. An empty value removes an attribute.
func (q *queue) set(wanted map[string]string) {
	for name, v := range wanted {
		if v == "" {
			delete(q.attributes, name)
		} else {
			q.attributes[name] = v
		}
	}
}

func (q *queue) number(name string) int {
	n, _ := strconv.Atoi(q.attributes[name]) // checked when it was set
	return n
}

func (q *queue) seconds(name string) time.Duration {
	return time.Duration(q.number(name)) * time.Second
}

type setQueueAttributesInput struct {
	QueueURL   *string `json:"QueueUrl"`
	Attributes map[string]string
}

func (s *Server) setQueueAttributes(_ request, in setQueueAttributesInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.Attributes == nil {
		return nil, missing("Attributes")
	}
	if err := s.checkAttributes(q, in.Attributes); err != nil {
		return nil, err
	}
	q.set(in.Attributes)
	q.modified = time.Now()
	q.wake() // the retention or the redrive policy may be another
	return nil, nil
}

type getQueueAttributesInput struct {
	QueueURL       *string `json:"QueueUrl"`
	AttributeNames []string
}

func (s *Server) getQueueAttributes(_ request, in getQueueAttributesInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	q.expire(now)
	all := maps.Clone(q.attributes)
	ready, delayed, flying := 0, 0, 0
	for _, m := range q.messages {
		switch {
		case m.inFlight(now):
			flying++
		case m.visible.After(now):
			delayed++
		default:
			ready++
		}
	}
	all["ApproximateNumberOfMessages"] = strconv.Itoa(ready)
	all["ApproximateNumberOfMessagesDelayed"] = strconv.Itoa(delayed)
	all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(flying)
	all["CreatedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10)
	all["LastModifiedTimestamp"] = strconv.FormatInt(q.modified.Unix(), 10)
	all["QueueArn"] = q.arn
	out := map[string]string{}
	for _, name := range in.AttributeNames {
		switch v, ok := all[name]; {
		case name == "All":
			maps.Copy(out, all)
		case ok:
			out[name] = v
		case !knownAttribute(name):
			return nil, unknownAttribute(name)
		}
	}
	return struct {
		Attributes map[string]string `json:",omitempty"`
	}{out}, nil
}

func knownAttribute(name string) bool {
	_, number := ranges[name]
	_, word := words[name]
	return number || word || slices.Contains(computed, name) ||
		slices.Contains([]string{"FifoQueue", "KmsMasterKeyId", "Policy", "RedriveAllowPolicy", "RedrivePolicy"}, name)
}

type getQueueURLInput struct {
	QueueName              *string
	QueueOwnerAWSAccountID *string `json:"QueueOwnerAWSAccountId"`
}

func (s *Server) getQueueURL(r request, in getQueueURLInput) (any, error) {
	name := value(in.QueueName)
	if name == "" {
		return nil, missing("QueueName")
	}
	if !legalName(name, "") && !legalName(name, fifoSuffix) {
		return nil, fail("InvalidParameterValue",
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	owner := value(in.QueueOwnerAWSAccountID)
	if s.queues[name] == nil || owner != "" && owner != s.cfg.Account {
		return nil, noQueue()
	}
	return queueURL{s.url(r, name)}, nil
}

type queueInput struct {
	QueueURL *string `json:"QueueUrl"`
}

func (s *Server) deleteQueue(_ request, in queueInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	delete(s.queues, q.name)
	s.deleted[q.name] = time.Now()
	q.wake()
	return nil, nil
}

func (s *Server) purgeQueue(_ request, in queueInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !q.purged.IsZero() && now.Sub(q.purged) < time.Minute {
		return nil, failf("PurgeQueueInProgress",
			"Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	q.messages = nil
	return nil, nil
}

type pageInput struct {
	MaxResults *int
	NextToken  *string
}

// page cuts a sorted list. The token is the last name of the page before.
func (p pageInput) page(names []string) ([]string, string, error) {
	if err := inRange("MaxResults", p.MaxResults, 1, 1000); err != nil {
		return nil, "", err
	}
	if p.NextToken != nil {
		i, found := slices.BinarySearch(names, *p.NextToken)
		if found {
			i++
		}
		names = names[i:]
	}
	size := 1000
	if p.MaxResults != nil {
		size = *p.MaxResults
	}
	if len(names) <= size {
		return names, "", nil
	}
	names = names[:size]
	if p.MaxResults == nil {
		return names, "", nil // without the parameter there are no pages
	}
	return names, names[size-1], nil
}

func (s *Server) urls(r request, names []string) []string {
	urls := make([]string, 0, len(names))
	for _, name := range names {
		urls = append(urls, s.url(r, name))
	}
	return urls
}

type listQueuesInput struct {
	pageInput
	QueueNamePrefix string
}

func (s *Server) listQueues(r request, in listQueuesInput) (any, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, in.QueueNamePrefix) {
			names = append(names, name)
		}
	}
	names, next, err := in.page(names)
	return struct {
		QueueURLs []string `json:"QueueUrls,omitempty"`
		NextToken string   `json:",omitempty"`
	}{s.urls(r, names), next}, err
}

type listSourcesInput struct {
	pageInput
	queueInput
}

func (s *Server) listDeadLetterSourceQueues(r request, in listSourcesInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	names, next, err := in.page(s.sourcesOf(q))
	return struct {
		QueueURLs []string `json:"queueUrls"` // the API writes this one in lower case
		NextToken string   `json:",omitempty"`
	}{s.urls(r, names), next}, err
}

// sourcesOf returns the names of the queues whose redrive policy names q.
func (s *Server) sourcesOf(q *queue) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if p, ok := s.queues[name].redrive(); ok && p.target == q.arn {
			names = append(names, name)
		}
	}
	return names
}

type tagQueueInput struct {
	QueueURL *string `json:"QueueUrl"`
	Tags     map[string]string
}

func (s *Server) tagQueue(_ request, in tagQueueInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.Tags == nil {
		return nil, missing("Tags")
	}
	merged := maps.Clone(q.tags)
	maps.Copy(merged, in.Tags)
	if err := checkTags(merged); err != nil {
		return nil, err
	}
	q.tags = merged
	return nil, nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > 50 {
		return fail("InvalidParameterValue", "Too many tags added for queue.")
	}
	for key, v := range tags {
		if n := len([]rune(key)); n < 1 || n > 128 || len([]rune(v)) > 256 {
			return fail("InvalidParameterValue", "Tag keys have 1 to 128 characters and tag values at most 256.")
		}
	}
	return nil
}

type untagQueueInput struct {
	QueueURL *string `json:"QueueUrl"`
	TagKeys  []string
}

func (s *Server) untagQueue(_ request, in untagQueueInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.TagKeys == nil {
		return nil, missing("TagKeys")
	}
	for _, key := range in.TagKeys {
		delete(q.tags, key)
	}
	return nil, nil
}

func (s *Server) listQueueTags(_ request, in queueInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return struct {
		Tags map[string]string `json:",omitempty"`
	}{q.tags}, nil
}
