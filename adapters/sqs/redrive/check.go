package redrive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/internal/nearest"
)

// Report is what a check found.
type Report struct {
	// Findings in the order of the queues. Stream is the queue's name, or where
	// its export comes from if it has none.
	Findings []adapters.Finding
	// Links are the policies that could be read, by source.
	Links []Link
	// Queues is how many were looked at.
	Queues int
}

// Link is what a source does with messages that nobody deletes.
type Link struct {
	Source          string
	DeadLetter      string
	MaxReceiveCount int
	// VisibilityTimeout is the source's, in whole seconds.
	VisibilityTimeout time.Duration
}

// String is the line that people and scripts look for.
func (l Link) String() string {
	return fmt.Sprintf("DLQ=%s maxReceiveCount=%d VisibilityTimeout=%ds", l.DeadLetter, l.MaxReceiveCount, int64(l.VisibilityTimeout/time.Second))
}

// check is one run.
type check struct {
	opts     Options
	pair     bool
	findings []adapters.Finding
	links    []Link
}

// node is a queue in the graph.
type node struct {
	Export
	id    queue
	label string // its name, or where it comes from

	role     adapters.Stream
	declared bool // the application says so
	live     bool // see Options.Live
	policy   *redrivePolicy
	allowed  *allowPolicy
	target   *node // nil if the policy names none that was exported
	sources  []*node
	cyclic   bool
}

// hasPolicy reports whether there is a RedrivePolicy, whatever is in it. An
// empty string is how one is removed.
func (n *node) hasPolicy() bool {
	return strings.TrimSpace(n.Attributes[attrRedrive]) != "" && n.kinds[attrRedrive] != null
}

// add adds a finding of the first severity of its rule.
func (c *check) add(rule string, n *node, message, fix string) {
	at := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == rule })
	c.addAs(rules[at].Severities[0], rule, n, message, fix)
}

func (c *check) addAs(s adapters.Severity, rule string, n *node, message, fix string) {
	c.findings = append(c.findings, adapters.Finding{Rule: rule, Severity: s, Stream: n.label, Message: message, Fix: fix})
}

// node looks at a queue by itself.
func (c *check) node(export Export) *node {
	n := &node{Export: export, live: c.opts.Live}
	c.identify(n)
	c.attributes(n)
	c.values(n)
	return n
}

// identify finds out which queue it is.
func (c *check) identify(n *node) {
	const fix = "export it again: QueueUrl is the URL that was asked for, QueueArn is among the attributes"
	arn := n.Attributes["QueueArn"]
	n.label = cmp.Or(n.Origin, n.URL, arn, "?")
	var fromURL queue
	var aws bool
	if n.URL != "" {
		q, isAWS, problem := parseURL(n.URL)
		if problem != "" {
			c.add("queue-identity", n, fmt.Sprintf("QueueUrl %s %s", quote(n.URL), problem), fix)
			return
		}
		n.label, fromURL, aws = q.name, q, isAWS
		if p := nameProblem(q.name); p != "" {
			c.add("queue-name", n, fmt.Sprintf("the queue of %s %s", quote(n.URL), p), "create it under another name")
			return
		}
	}
	if _, there := n.Attributes["QueueArn"]; !there {
		if n.URL == "" {
			c.add("queue-identity", n, "there is neither a QueueUrl nor a QueueArn, so nobody knows which queue it is", fix)
			return
		}
		n.id = fromURL
		return
	}
	q, problem := parseARN(arn)
	switch {
	case problem != "":
		c.add("queue-identity", n, fmt.Sprintf("QueueArn %s %s", quote(arn), problem), fix)
		return
	case fromURL.known() && (q.name != fromURL.name || aws && !q.is(fromURL)):
		c.add("queue-identity", n, fmt.Sprintf("QueueUrl %s and QueueArn %s are of different queues", quote(n.URL), quote(arn)), fix)
		return
	}
	n.id, n.label = q, q.name
}

// attributes looks at the names and the types of attributes.
func (c *check) attributes(n *node) {
	names := n.names()
	var outside []string
	for _, name := range names {
		switch {
		case like(name, keyTarget), like(name, keyCount):
			outside = append(outside, quote(name))
		case !knownAttributes[name]:
			if near := nearestAttribute(name); near != "" && n.Attributes[near] == "" {
				c.add("attribute-name", n, fmt.Sprintf("%s is no attribute of SQS; it looks like %s", quote(name), near), "rename it to "+near)
			}
		}
	}
	if len(outside) > 0 {
		c.add("redrive-toplevel", n, fmt.Sprintf("%s %s into the string of RedrivePolicy: SQS has no %s", strings.Join(outside, " and "), plural(len(outside), "belongs", "belong"), plural(len(outside), "such attribute", "such attributes")),
			`set RedrivePolicy to "`+goodRedrive+`"`)
	}
	var odd []string
	for _, name := range names {
		k := n.kinds[name]
		policy := name == attrRedrive || name == attrAllow
		accepted := c.opts.Template && (k == number || k == boolean || k == object && name == "Policy")
		if k == "" || policy && k != null || accepted || like(name, keyTarget) || like(name, keyCount) {
			continue
		}
		odd = append(odd, fmt.Sprintf("%s is %s", quote(name), k))
	}
	if len(odd) > 0 {
		c.add("attribute-type", n, strings.Join(odd, ", ")+", not a string: AWS exports strings",
			"export it again with get-queue-attributes; if this is a template on purpose, check it with --template")
	}
}

// nearestAttribute returns the attribute that a name was meant to be, or "".
func nearestAttribute(name string) string {
	known := make([]string, 0, len(knownAttributes))
	for k := range knownAttributes {
		known = append(known, k)
	}
	slices.Sort(known)
	near, _ := nearest.Within(name, known, 2)
	return near
}

// misnamed reports whether the policy stands under a name that is not its own,
// or its contents outside of it, or null in its place: then it is not missing.
func (n *node) misnamed() bool {
	return slices.ContainsFunc(n.names(), func(name string) bool {
		return n.kinds[name] == null && name == attrRedrive || like(name, keyTarget) || like(name, keyCount) || !knownAttributes[name] && nearestAttribute(name) == attrRedrive
	})
}

// numbers are the attributes with a range. A default of -1 is not known: it
// depends on when the queue was created, or the attribute means nothing if it is
// not set.
var numbers = []struct {
	name                string
	least, most, absent int
}{
	{"DelaySeconds", 0, 900, 0},
	{"VisibilityTimeout", 0, 43_200, 30},
	{"MessageRetentionPeriod", 60, 1_209_600, 345_600},
	{"ReceiveMessageWaitTimeSeconds", 0, 20, 0},
	{"MaximumMessageSize", 1024, 1_048_576, -1},
	{"KmsDataKeyReusePeriodSeconds", 60, 86_400, -1},
}

// hides reports whether a live server does not tell an attribute.
func (n *node) hides(name string) bool {
	_, there := n.Attributes[name]
	return n.live && !there
}

var words = map[string][]string{
	"FifoQueue":                 {"true", "false"},
	"ContentBasedDeduplication": {"true", "false"},
	"SqsManagedSseEnabled":      {"true", "false"},
	"DeduplicationScope":        {"messageGroup", "queue"},
	"FifoThroughputLimit":       {"perMessageGroupId", "perQueue"},
}

// number is the value of an attribute of the table, or its default; false means
// that it is not known.
func (n *node) number(name string) (int, bool) {
	for _, a := range numbers {
		if a.name != name {
			continue
		}
		raw, there := n.Attributes[name]
		if !there {
			return a.absent, a.absent >= 0 && !n.hides(name)
		}
		v, err := strconv.Atoi(raw)
		return v, err == nil && wholeNumber.MatchString(raw) && v >= a.least && v <= a.most
	}
	return 0, false
}

// values looks at attributes that make no sense by themselves.
func (c *check) values(n *node) {
	for _, a := range numbers {
		raw, there := n.Attributes[a.name]
		if _, ok := n.number(a.name); there && !ok && scalar(n.kinds[a.name]) {
			c.add("attr-range", n, fmt.Sprintf("%s is %s, allowed are whole numbers from %d to %d", a.name, quote(raw), a.least, a.most), "set it to a value that SQS takes")
		}
	}
	for _, name := range n.names() {
		if allowed := words[name]; allowed != nil && !slices.Contains(allowed, n.Attributes[name]) && scalar(n.kinds[name]) {
			c.add("attr-range", n, fmt.Sprintf("%s is %s, allowed are %s", name, quote(n.Attributes[name]), strings.Join(allowed, " and ")), "set it to a value that SQS takes")
		}
	}
	if fifo := n.Attributes["FifoQueue"]; n.id.known() && (fifo == "true" && !n.id.fifo() || fifo == "false" && n.id.fifo()) {
		c.add("queue-name", n, fmt.Sprintf("FifoQueue is %s, and by its name it is a %s queue", fifo, queueType(n.id)), "a FIFO queue has both, a standard queue none; neither can be changed, so create another queue")
	}
	if v, ok := n.number("VisibilityTimeout"); ok && v == 0 {
		c.add("visibility-zero", n, "VisibilityTimeout is 0: a message can be received again at once, while it is being handled", "set it above the time that the handler takes, or to 30 with a heartbeat")
	}
	if n.Attributes["FifoThroughputLimit"] == "perMessageGroupId" && n.Attributes["DeduplicationScope"] != "messageGroup" {
		c.add("fifo-throughput", n, fmt.Sprintf("FifoThroughputLimit is perMessageGroupId, and DeduplicationScope is %s", cmp.Or(n.Attributes["DeduplicationScope"], "not set")), "set DeduplicationScope to messageGroup too")
	}
	if n.Attributes["KmsMasterKeyId"] != "" && n.Attributes["SqsManagedSseEnabled"] == "true" {
		c.add("sse-both", n, "KmsMasterKeyId is set, and SqsManagedSseEnabled is true", "choose one: a key of KMS, or the key of SQS")
	}
}

func scalar(k kind) bool { return k == "" || k == number || k == boolean }

// place compares where the target lies with where the source lies. It reports
// whether it is the right place.
func (c *check) place(n *node) bool {
	s, t := n.id, n.policy.target
	if !s.known() || !t.known() {
		return true
	}
	before := len(c.findings)
	const fix = "let RedrivePolicy name a queue in the account and the region of the source"
	differ := func(rule, what, mine, its string) {
		c.add(rule, n, fmt.Sprintf("the dead letter queue %s is in the %s %s, the source in %s", quote(t.String()), what, its, mine), fix)
	}
	if !same(s.partition, t.partition) {
		differ("redrive-partition", "partition", s.partition, t.partition)
	} else if !same(s.region, t.region) {
		differ("redrive-region", "region", s.region, t.region)
	}
	if !same(s.account, t.account) {
		differ("redrive-account", "account", s.account, t.account)
	}
	if s.fifo() != t.fifo() {
		c.add("redrive-type", n, fmt.Sprintf("%s is a %s queue, its dead letter queue %s a %s queue", s.name, queueType(s), t.name, queueType(t)),
			"the dead letter queue of a FIFO queue is a FIFO queue, with .fifo in its name, and that of a standard queue a standard queue")
	}
	return len(c.findings) == before
}

func queueType(q queue) string {
	if q.fifo() {
		return "FIFO"
	}
	return "standard"
}

func (c *check) missing(n *node) {
	what := "there is no RedrivePolicy"
	if _, there := n.Attributes[attrRedrive]; there {
		what = "RedrivePolicy is an empty string, which is how a policy is removed"
	}
	c.add("redrive-missing", n, what+": a message that is never deleted comes back until it expires, and is then lost",
		"set RedrivePolicy to a dead letter queue of the same account and region; a queue that needs none is named by --exclude")
}

func (c *check) count(n *node) {
	switch count := n.policy.count; {
	case count == 1:
		c.add("mrc-one", n, "maxReceiveCount is 1: whatever interrupts the first try dead-letters the message, also a deployment", "set 5 or more")
	case c.pair || count == 0:
	case count < 5:
		c.add("mrc-low", n, fmt.Sprintf("maxReceiveCount is %d, and deployments, crashes and abandoned batches are receives too", count), "set 5 or more")
	case count > 100:
		c.add("mrc-high", n, fmt.Sprintf("maxReceiveCount is %d: a message that kills its consumer may do so that often", count), "set 5 to 100, and retry in the application")
	}
}

func (c *check) link(n *node) {
	v, ok := n.number("VisibilityTimeout")
	if n.policy.target.known() && n.policy.count > 0 && ok {
		c.links = append(c.links, Link{n.label, n.policy.target.name, n.policy.count, time.Duration(v) * time.Second})
	}
}

// edge compares a source with its dead letter queue.
func (c *check) edge(s, d *node) {
	c.permission(s, d)

	mine, ok := s.number("MessageRetentionPeriod")
	its, itsOK := d.number("MessageRetentionPeriod")
	if (!ok || !itsOK) && (s.hides("MessageRetentionPeriod") || d.hides("MessageRetentionPeriod")) {
		c.add("retention-unknown", s, fmt.Sprintf("the server does not tell how long it, or its dead letter queue %s, keeps messages, so that they cannot be compared", d.label),
			"nothing, if this is not AWS; else look at MessageRetentionPeriod there")
	}
	if ok && itsOK && its <= mine {
		reason := "the age of a message counts from when it was first sent, so it expires too early here"
		if s.id.fifo() {
			reason = "dead letters need more time than messages, as people look at them"
		}
		c.add("dlq-retention-short", d, fmt.Sprintf("it keeps messages for %s, no longer than its source %s, %s: %s", seconds(d, "MessageRetentionPeriod"), s.label, seconds(s, "MessageRetentionPeriod"), reason),
			longerThan(s, mine))
	}
	if visibility, known := s.number("VisibilityTimeout"); known && itsOK && !s.id.fifo() && s.policy.count > 0 {
		wait := visibility
		if c.opts.Application.Mode == ModeInPlace {
			wait = max(wait, int(c.opts.Application.MaxBackoff/time.Second))
		}
		delay, _ := s.number("DelaySeconds")
		if worst := s.policy.count*wait + delay; its <= worst {
			severity := sevE
			if c.pair {
				severity = sevW
			}
			c.addAs(severity, "dlq-retention-worstcase", d, fmt.Sprintf("it keeps messages for %s from when they were first sent, and %s may hold them for %d receives of %d s and a delay of %d s: %d s", span(its), s.label, s.policy.count, wait, delay, worst),
				"keep messages longer here, up to 1209600 s, or lower maxReceiveCount or VisibilityTimeout of the source")
		}
	}
	c.size(s, d)
}

func longerThan(s *node, retention int) string {
	if retention >= 1_209_600 {
		return fmt.Sprintf("lower MessageRetentionPeriod of %s, which is the greatest that there is, and set 1209600 here", s.label)
	}
	return "set MessageRetentionPeriod to 1209600 here, 14 days"
}

// size compares what two queues take.
func (c *check) size(s, d *node) {
	mine, ok := s.number("MaximumMessageSize")
	its, itsOK := d.number("MaximumMessageSize")
	switch {
	case !ok || !itsOK:
	case its < mine:
		c.add("size-family", d, fmt.Sprintf("MaximumMessageSize is %d, and %s takes %d", its, s.label, mine), "set MaximumMessageSize to 1048576 here")
	case its == mine && its < 1_048_576 && !c.pair:
		c.addAs(sevI, "size-family", d, fmt.Sprintf("MaximumMessageSize is %d, as that of %s: a full message and its evidence do not fit", its, s.label), "set MaximumMessageSize to 1048576 here")
	}
}

// permission asks whether d lets s move messages there.
func (c *check) permission(s, d *node) {
	if d.allowed == nil || !s.id.known() {
		return
	}
	switch p := d.allowed; {
	case p.permission == "denyAll":
		c.add("allow-denyall", d, fmt.Sprintf("RedriveAllowPolicy denies all queues, also %s", s.label), "set redrivePermission to byQueue, and list "+s.id.String())
	case p.permission == "byQueue" && p.listed > 0 && !slices.ContainsFunc(p.sources, s.id.is):
		c.add("allow-not-listed", d, fmt.Sprintf("RedriveAllowPolicy does not list %s, whose dead letter queue it is", s.label), "add "+s.id.String()+" to sourceQueueArns")
	}
}

// seconds shows an attribute, and that it is a default if so.
func seconds(n *node, name string) string {
	v, _ := n.number(name)
	if _, there := n.Attributes[name]; !there {
		return span(v) + ", the default"
	}
	return span(v)
}

// span shows seconds, and days where they are whole.
func span(v int) string {
	const day = 24 * 60 * 60
	if v >= day && v%day == 0 {
		return fmt.Sprintf("%d s (%d %s)", v, v/day, plural(v/day, "day", "days"))
	}
	return fmt.Sprintf("%d s", v)
}

// public reports whether an access policy allows everybody without a condition.
func public(policy string) bool {
	type statement struct {
		Effect    string
		Principal json.RawMessage
		Condition map[string]any
	}
	var one struct{ Statement statement }
	var many struct{ Statement []statement }
	if json.Unmarshal([]byte(policy), &many) != nil {
		if json.Unmarshal([]byte(policy), &one) != nil {
			return false
		}
		many.Statement = []statement{one.Statement}
	}
	return slices.ContainsFunc(many.Statement, func(s statement) bool {
		return s.Effect == "Allow" && len(s.Condition) == 0 && everybody(s.Principal)
	})
}

func everybody(principal json.RawMessage) bool {
	var v any
	if json.Unmarshal(principal, &v) != nil {
		return false
	}
	if m, ok := v.(map[string]any); ok {
		v = m["AWS"]
	}
	if list, ok := v.([]any); ok {
		return slices.Contains(list, any("*"))
	}
	return v == "*"
}
