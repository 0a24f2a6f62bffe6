package redrive

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Check looks at all queues of a folder or an account. Roles follow from the
// graph, unless opts tells them.
func Check(exports []Export, opts Options) Report {
	c := &check{opts: opts}
	g := c.graph(exports)
	for _, n := range g.nodes {
		n.allowed = c.allow(n) // a source asks its target's
	}
	for _, n := range g.nodes {
		c.alone(g, n)
		if n.policy != nil && n.target != nil && n.target != n && !opts.excluded(n.label) {
			c.edge(n, n.target)
			c.edgeByRole(n, n.target)
		}
		c.application(g, n)
		c.live(n)
	}
	c.cycles(g)
	c.topics()
	c.findings = slices.DeleteFunc(c.findings, func(f adapters.Finding) bool { return opts.excluded(f.Stream) })
	c.links = slices.DeleteFunc(c.links, func(l Link) bool { return opts.excluded(l.Source) })
	for _, pattern := range opts.Exclude {
		if !slices.ContainsFunc(g.nodes, func(n *node) bool { ok, _ := path.Match(pattern, n.label); return ok }) {
			c.add("exclude-unused", &node{label: pattern}, "it is excluded, and there is no such queue", "remove it from --exclude, or correct it")
		}
	}
	return Report{Findings: c.findings, Links: c.links, Queues: len(g.nodes)}
}

type graph struct {
	nodes  []*node
	byName map[string][]*node
	// partial: a queue that is not there may be one that could not be read.
	partial bool
}

func (g *graph) find(q queue) *node {
	for _, n := range g.byName[q.name] {
		if n.id.is(q) {
			return n
		}
	}
	return nil
}

// graph reads every queue and its policies, and finds out who is what.
func (c *check) graph(exports []Export) *graph {
	g := &graph{byName: map[string][]*node{}, partial: c.opts.Partial}
	for _, export := range exports {
		n := c.node(export)
		if !n.id.known() {
			g.partial = true
		} else if first := g.find(n.id); first != nil {
			c.add("queue-duplicate", n, fmt.Sprintf("it was exported twice%s: which one holds?", origins(first, n)), "keep the newer one")
			continue
		} else {
			g.byName[n.id.name] = append(g.byName[n.id.name], n)
		}
		g.nodes = append(g.nodes, n)
	}
	for _, n := range g.nodes {
		if !n.hasPolicy() {
			continue
		}
		// Once more with what is wrong, when it is known whose policy it is.
		if n.policy = (&check{opts: c.opts}).redrive(n); n.policy == nil || !n.policy.target.known() {
			continue
		}
		if n.target = g.find(n.policy.target); n.target != nil && n.target != n {
			n.target.sources = append(n.target.sources, n)
		}
	}
	for _, n := range g.nodes {
		switch role, declared := c.opts.Application.Roles[n.label]; {
		case declared:
			n.role, n.declared = role, true
		case len(n.sources) > 0:
			n.role = adapters.StreamDeadLetter
		default:
			n.role = adapters.StreamMain
		}
	}
	for _, cycle := range g.cycles() {
		for _, n := range cycle {
			n.cyclic = true
		}
	}
	return g
}

func origins(a, b *node) string {
	if a.Origin == "" || b.Origin == "" {
		return ""
	}
	return ", in " + a.Origin + " and in " + b.Origin
}

// cycles returns the loops of two queues and more, each once.
func (g *graph) cycles() (cycles [][]*node) {
	walk := map[*node]int{} // in which walk it was seen
	for i, start := range g.nodes {
		n := start
		for n != nil && walk[n] == 0 {
			walk[n] = i + 1
			n = n.target
		}
		if n == nil || walk[n] != i+1 || n.target == n {
			continue
		}
		cycle := []*node{n}
		for m := n.target; m != n; m = m.target {
			cycle = append(cycle, m)
		}
		cycles = append(cycles, cycle)
	}
	return cycles
}

func (c *check) cycles(g *graph) {
	for _, cycle := range g.cycles() {
		first := 0 // by name, of those about which something may be said
		for i, n := range cycle {
			mine, its := c.opts.excluded(n.label), c.opts.excluded(cycle[first].label)
			if its && !mine || its == mine && n.label < cycle[first].label {
				first = i
			}
		}
		var names []string
		for i := range cycle {
			names = append(names, cycle[(first+i)%len(cycle)].label)
		}
		c.add("redrive-cycle", cycle[first], fmt.Sprintf("its policy leads back to it: %s", strings.Join(append(names, names[0]), " -> ")),
			"remove RedrivePolicy from the one that is the dead letter queue")
	}
}

// alone looks at the policy of one queue. It keeps n.policy where it is to be
// compared with its target.
func (c *check) alone(g *graph, n *node) {
	switch {
	case n.cyclic:
		n.policy = nil
		return // one sentence for all of them
	case n.role == adapters.StreamParking && n.hasPolicy():
		c.parkingRedrives(n)
		n.policy = nil
		return
	case n.role == adapters.StreamDeadLetter && n.hasPolicy():
		n.policy = nil // it is to go, so what is in it does not matter
		if t := n.target; t != nil && t.declared && (t.role == adapters.StreamRetry || t.role == adapters.StreamMain) {
			c.add("redrive-chain", n, fmt.Sprintf("it is a dead letter queue, and its policy leads to %s, which has consumers", t.label), "remove RedrivePolicy here, and replay dead letters on purpose")
			return
		}
		c.deadLetterRedrives(n)
		return
	case n.role == adapters.StreamDeadLetter, n.role == adapters.StreamParking:
		if n.role == adapters.StreamDeadLetter && len(n.sources) == 0 {
			c.add("dlq-unreferenced", n, "no RedrivePolicy names it", "let the RedrivePolicy of its source name it")
		}
		return
	case !n.hasPolicy():
		if !n.misnamed() && n.role != adapters.StreamSuspect && n.id.known() {
			c.missing(n)
		}
		return
	}
	if n.policy = c.redrive(n); n.policy == nil {
		return
	}
	c.link(n)
	c.count(n)
	if t := n.policy.target; t.known() {
		switch {
		case n.target == n:
			c.add("redrive-self", n, "RedrivePolicy names the queue itself", "let it name another queue")
		case c.place(n) && n.target == nil:
			c.dangling(g, n)
		}
	}
	if n.id.fifo() {
		c.add("fifo-dlq-order", n, "messages that are moved to the dead letter queue are overtaken by those behind them in their group", "have handlers that can live with it, or no RedrivePolicy and --exclude")
	}
	if n.allowed != nil && n.target != nil && slices.ContainsFunc(n.allowed.sources, n.target.id.is) {
		c.add("allow-wrong-side", n, fmt.Sprintf("RedriveAllowPolicy lists %s, which is its own dead letter queue", n.target.label), "set it on "+n.target.label+", and list "+n.id.String()+" there")
	}
}

func (c *check) dangling(g *graph, n *node) {
	severity, partial := sevE, ""
	if g.partial {
		severity, partial = sevW, "; but not all queues are known"
	}
	c.addAs(severity, "redrive-dangling", n, fmt.Sprintf("RedrivePolicy names %s, which is not among the exports%s", quote(n.policy.target.String()), partial), "create it, correct RedrivePolicy, or export it too")
}

func (c *check) parkingRedrives(n *node) {
	severity := sevE
	if n.policy != nil && n.policy.count >= maxReceives {
		severity = sevW
	}
	c.addAs(severity, "parking-redrive", n, "it is a parking lot, and has a RedrivePolicy: what waits is received at each look", "remove RedrivePolicy here: set it to an empty string")
}

// edgeByRole is what is said about an edge only if all queues are there.
func (c *check) edgeByRole(s, d *node) {
	if d.declared && d.role == adapters.StreamRetry {
		c.add("dlq-consumed-as-retry", d, fmt.Sprintf("it is a retry queue, and the dead letter queue of %s: its delay does not apply to what SQS moves", s.label), "let RedrivePolicy name a queue of its own")
	}
	if key, its := s.Attributes["KmsMasterKeyId"], d.Attributes["KmsMasterKeyId"]; key != "" && its == "" && d.Attributes["SqsManagedSseEnabled"] != "true" {
		c.add("sse-weaker-dlq", d, fmt.Sprintf("it is not encrypted, and %s is, with a key of KMS", s.label), "set KmsMasterKeyId here too")
	} else if key != "" && its != "" && key != its {
		c.add("sse-cross-key", d, fmt.Sprintf("its key of KMS is not that of %s", s.label), "give whoever moves messages kms:Decrypt on one, and kms:GenerateDataKey on the other")
	}
	if s != d.sources[0] {
		return
	}
	// Once for each dead letter queue.
	if len(d.sources) > 1 {
		c.add("dlq-shared", d, fmt.Sprintf("it is the dead letter queue of %s", labels(d.sources)), "name the destination when messages are moved back")
	}
	if d.allowed == nil && d.Attributes[attrAllow] == "" || d.allowed != nil && d.allowed.permission == "allowAll" {
		c.add("allow-open", d, "every queue of the account may use it as its dead letter queue", "set RedriveAllowPolicy with byQueue and the ARNs of its sources")
	}
	if d.allowed != nil {
		for _, q := range d.allowed.sources {
			if !slices.ContainsFunc(d.sources, func(s *node) bool { return s.id.is(q) }) {
				c.add("allow-stale", d, fmt.Sprintf("RedriveAllowPolicy lists %s, whose RedrivePolicy does not name this queue", quote(q.String())), "remove it from sourceQueueArns")
			}
		}
	}
	if v, ok := d.number("MessageRetentionPeriod"); ok && d.id.fifo() && v < 4*86_400 {
		c.add("dlq-retention-fifo", d, "it keeps messages for "+seconds(d, "MessageRetentionPeriod"), "set MessageRetentionPeriod to 1209600, 14 days")
	}
	if v, ok := d.number("DelaySeconds"); ok && v > 0 {
		c.addAs(sevW, "default-delay", d, fmt.Sprintf("DelaySeconds is %d: a message that a program sends here cannot be seen for that long", v), "set DelaySeconds to 0")
	}
}

func labels(nodes []*node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.label
	}
	return strings.Join(names, ", ")
}

// application compares a queue with what its consumers do.
func (c *check) application(g *graph, n *node) {
	a := c.opts.Application
	retention, kept := n.number("MessageRetentionPeriod")
	visibility, hides := n.number("VisibilityTimeout")
	consumed := n.role == adapters.StreamMain || n.role == adapters.StreamRetry || n.role == adapters.StreamSuspect
	if n.role == adapters.StreamParking && a.ParkingInterval > 0 && kept && wait(retention) < a.ParkingInterval {
		c.add("parking-retention", n, fmt.Sprintf("it keeps messages for %s, and looks at them every %v", seconds(n, "MessageRetentionPeriod"), a.ParkingInterval), "set MessageRetentionPeriod to 1209600, or look more often")
	}
	if n.declared && (n.role == adapters.StreamRetry || n.role == adapters.StreamParking) {
		for _, other := range g.nodes {
			if other.role == adapters.StreamMain && family(other.label, n.label) {
				c.size(other, n)
			}
		}
	}
	if n.declared && n.id.fifo() && (n.role == adapters.StreamRetry || n.role == adapters.StreamDeadLetter) && n.Attributes["ContentBasedDeduplication"] == "true" {
		severity := sevW
		if a.NoDeduplicationIDs {
			severity = sevE
		}
		c.addAs(severity, "fifo-content-dedup", n, "ContentBasedDeduplication is true: the same body within 5 minutes is accepted and dropped", "send deduplication ids, and set it to false")
	}
	if public(n.Attributes["Policy"]) {
		c.add("policy-public", n, "Policy has a statement that allows everybody without a condition", "name principals, or add a condition such as aws:SourceArn")
	}
	if !consumed {
		return
	}
	if n.declared && n.role != adapters.StreamSuspect {
		if v, ok := n.number("DelaySeconds"); ok && v > 0 {
			c.add("default-delay", n, fmt.Sprintf("DelaySeconds is %d, and a client cannot ask for no delay: it is added to each message", v), "set DelaySeconds to 0")
		}
	}
	if strings.HasSuffix(n.label, "-delay"+fifoSuffix) {
		if v, ok := n.number("DelaySeconds"); ok && v != 900 {
			c.add("fifo-delay-queue", n, fmt.Sprintf("it is a delay queue by its name, and DelaySeconds is %d", v), "set DelaySeconds to 900")
		}
	}
	if a.Mode == ModeCopy && n.id.fifo() && (n.role == adapters.StreamRetry || !g.hasRetry()) {
		c.add("fifo-mode", n, "retries are copies with a delay, which a FIFO queue does not take", "retry in place, or through a standard retry queue if order does not matter")
	}
	if kept {
		switch {
		case a.Mode == ModeInPlace && a.Schedule > 0 && wait(retention) < a.Schedule+scheduleMargin:
			c.add("source-retention-schedule", n, fmt.Sprintf("it keeps messages for %s, and retries in place take up to %v", seconds(n, "MessageRetentionPeriod"), a.Schedule), "set MessageRetentionPeriod to more, or retry for a shorter time")
		case a.Mode == ModeCopy && a.Drain > 0 && wait(retention) < maxDelay+a.Drain:
			c.add("source-retention-schedule", n, fmt.Sprintf("it keeps messages for %s, and a delay of up to %v and a backlog of up to %v come together", seconds(n, "MessageRetentionPeriod"), maxDelay, a.Drain), "set MessageRetentionPeriod to more")
		}
	}
	if hides {
		c.visibility(n, visibility)
	}
	if v, ok := n.number("ReceiveMessageWaitTimeSeconds"); ok && v == 0 && a.Poll == NoPoll {
		c.add("short-poll", n, "ReceiveMessageWaitTimeSeconds is 0, and receives ask for no wait: each looks at some of the servers of SQS only", "set ReceiveMessageWaitTimeSeconds to 20, or ask for a wait")
	}
	if n.policy == nil || n.policy.count == 0 {
		return
	}
	switch count := n.policy.count; {
	case a.Mode == ModeInPlace && a.Attempts > 0 && count <= a.Attempts:
		c.add("mrc-vs-attempts", n, fmt.Sprintf("maxReceiveCount is %d, and there are %d attempts in place: SQS moves the message first", count, a.Attempts), fmt.Sprintf("set maxReceiveCount to %d or more", a.Attempts+5))
	case a.Batch > 1 && a.Attempts > 0 && count < a.Attempts+5:
		c.add("mrc-batch", n, fmt.Sprintf("maxReceiveCount is %d, with batches of %d and %d attempts", count, a.Batch, a.Attempts), fmt.Sprintf("set maxReceiveCount to %d or more, or receive one message at a time", a.Attempts+5))
	}
}

const (
	maxDelay       = 900 * time.Second
	scheduleMargin = time.Hour
	maxPoll        = 20 * time.Second
)

func wait(seconds int) time.Duration { return time.Duration(seconds) * time.Second }

// family reports whether a queue belongs to a main one by its name, as
// pedidos-retry belongs to pedidos.
func family(main, other string) bool {
	rest, ok := strings.CutPrefix(other, strings.TrimSuffix(main, fifoSuffix))
	return ok && main != other && strings.HasPrefix(rest, "-")
}

func (g *graph) hasRetry() bool {
	return slices.ContainsFunc(g.nodes, func(n *node) bool { return n.declared && n.role == adapters.StreamRetry })
}

func (c *check) visibility(n *node, seconds int) {
	a, visibility := c.opts.Application, wait(seconds)
	if visibility == 0 {
		return // which is said by a rule of its own
	}
	poll := maxPoll
	if a.Poll > 0 {
		poll = a.Poll
	}
	if visibility < poll {
		c.add("visibility-poll", n, fmt.Sprintf("VisibilityTimeout is %d s, and a long poll takes up to %v: an answer that is late brings what is visible again", seconds, poll), fmt.Sprintf("set VisibilityTimeout to %d or more", int((poll+time.Second-1)/time.Second)))
	}
	switch {
	case a.HandlerTimeout > 0 && a.Heartbeat == NoHeartbeat && visibility < a.HandlerTimeout:
		c.add("visibility-handler", n, fmt.Sprintf("VisibilityTimeout is %d s, the handler may run for %v, and nothing extends it", seconds, a.HandlerTimeout), "set VisibilityTimeout above the handler's limit, or use a heartbeat")
	case a.Heartbeat > 0 && visibility < 3*a.Heartbeat:
		c.addAs(sevW, "visibility-handler", n, fmt.Sprintf("VisibilityTimeout is %d s, less than three beats of %v", seconds, a.Heartbeat), "beat more often, or set VisibilityTimeout to more")
	}
	if a.Batch > 1 && a.HandlerTimeout > 0 && visibility < time.Duration(a.Batch)*a.HandlerTimeout {
		c.add("visibility-batch", n, fmt.Sprintf("VisibilityTimeout is %d s, and a batch of %d may take %v", seconds, a.Batch, time.Duration(a.Batch)*a.HandlerTimeout), "receive fewer at a time, or set VisibilityTimeout to more")
	}
	if a.LambdaTimeout > 0 && visibility < 6*a.LambdaTimeout {
		c.add("visibility-lambda", n, fmt.Sprintf("VisibilityTimeout is %d s, and the function may run for %v", seconds, a.LambdaTimeout), fmt.Sprintf("set VisibilityTimeout to %d", int((6*a.LambdaTimeout+time.Second-1)/time.Second)))
	}
	if a.Heartbeat == NoHeartbeat && visibility > time.Hour {
		c.add("visibility-huge", n, fmt.Sprintf("VisibilityTimeout is %d s: what a crashed consumer held comes back only then", seconds), "use a heartbeat, and a visibility of a minute")
	}
}

// topics looks for two topics in one queue, and for queues that their topics'
// names do not lead to.
func (c *check) topics() {
	byQueue := map[string][]string{}
	topics := c.opts.Application.Topics
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		byQueue[topics[topic]] = append(byQueue[topics[topic]], topic)
	}
	for _, name := range slices.Sorted(maps.Keys(byQueue)) {
		if all := byQueue[name]; len(all) > 1 {
			c.add("name-collision", &node{label: name}, fmt.Sprintf("it is the queue of the topics %s", strings.Join(all, ", ")), "give one of them another name")
		}
		for _, topic := range byQueue[name] {
			if isCut(topic, name) {
				c.add("name-truncated", &node{label: name}, fmt.Sprintf("its name is that of %s, cut, with a hash at the end: SQS allows %d characters", quote(topic), maxName), "give it a shorter name, or the queue one of your own")
			}
		}
	}
}

// cutName is the form of a queue's name that was cut: a hash keeps it unique.
var cutName = regexp.MustCompile(`^(.+)-[0-9a-f]{8}(\.fifo)?$`)

// isCut reports whether the name of a queue is that of its topic, cut. What is no
// letter or digit, or the like, is another character in the queue's.
func isCut(topic, name string) bool {
	m := cutName.FindStringSubmatch(name)
	if m == nil || len(m[1]) >= len(topic) {
		return false
	}
	head := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, topic)
	return strings.HasPrefix(head, m[1])
}

// live looks at how many messages lie where.
func (c *check) live(n *node) {
	number := func(name string) int { v, _ := strconv.Atoi(n.Attributes[name]); return v }
	if keeps, ok := n.number("MessageRetentionPeriod"); ok && n.role == adapters.StreamDeadLetter {
		if age := c.opts.Application.Oldest[n.label]; age > wait(keeps)/4*3 {
			c.add("dlq-old", n, fmt.Sprintf("its oldest message is %v old, and it keeps messages for %s", age, span(keeps)), "collect them before then: spillway collect")
		}
	}
	if v := number("ApproximateNumberOfMessages"); v > 0 && n.role == adapters.StreamDeadLetter {
		c.add("dlq-not-empty", n, fmt.Sprintf("it holds about %d %s", v, plural(v, "message", "messages")), "look at them by cause: spillway collect, then spillway triage")
	}
	if v := number("ApproximateNumberOfMessagesNotVisible"); v > 90_000 {
		c.add("inflight-near-quota", n, fmt.Sprintf("about %d messages are in flight; at about 120,000 SQS hands out no more", v), "find out why consumers do not delete")
	}
	if v := number("ApproximateNumberOfMessagesDelayed"); v > 0 {
		c.add("delayed-backlog", n, fmt.Sprintf("about %d %s for their delay", v, plural(v, "message waits", "messages wait")), "nothing, if that is what retries do")
	}
}
