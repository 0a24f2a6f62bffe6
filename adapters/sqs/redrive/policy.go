package redrive

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A policy as far as it could be read: fields that are wrong stay zero.
type (
	redrivePolicy struct {
		target queue
		count  int
	}
	allowPolicy struct {
		permission string
		sources    []queue
		listed     int // with those that are no ARNs
	}
)

const (
	attrRedrive = "RedrivePolicy"
	attrAllow   = "RedriveAllowPolicy"
	keyTarget   = "deadLetterTargetArn"
	keyCount    = "maxReceiveCount"
	keyPermit   = "redrivePermission"
	keySources  = "sourceQueueArns"

	maxReceives = 1000
	maxSources  = 10

	goodRedrive = `{\"deadLetterTargetArn\":\"arn:aws:sqs:REGION:ACCOUNT:NAME-dlq\",\"maxReceiveCount\":\"5\"}`
	goodAllow   = `{\"redrivePermission\":\"byQueue\",\"sourceQueueArns\":[\"arn:aws:sqs:REGION:ACCOUNT:NAME\"]}`
)

var (
	wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})$`)
	someNumber  = regexp.MustCompile(`^-?[0-9]+$`)
)

// policyObject reads an attribute that holds a JSON object with some of keys.
// It returns nil if there is none, and whether a key that is not there may be
// meant by one that is.
func (c *check) policyObject(n *node, attribute, good string, keys ...string) (v *value, guess bool) {
	raw, there := n.Attributes[attribute]
	if !there || n.kinds[attribute] == null {
		return nil, false
	}
	fix := "set " + attribute + ` to a string that holds an object: "` + good + `"`
	wrong := func(format string, args ...any) {
		c.add("redrive-json", n, attribute+" "+fmt.Sprintf(format, args...), fix)
	}
	switch k := n.kinds[attribute]; k {
	case "":
	case object:
		if !c.opts.Template {
			c.add("redrive-object", n, attribute+" is an object, not a string that holds one: AWS does not export it so",
				"export it again with get-queue-attributes; if this is a template on purpose, check it with --template")
		}
	default:
		wrong("is %s, not a string", k)
		return nil, false
	}
	if strings.TrimSpace(raw) == "" {
		if attribute == attrAllow {
			wrong("is an empty string")
		}
		return nil, false
	}
	v, f := parseJSON([]byte(raw))
	switch {
	case f != nil:
		wrong("holds a text that %s", f.message)
		return nil, false
	case v.kind == text && strings.HasPrefix(strings.TrimSpace(v.text), "{"):
		wrong("is encoded twice: its string holds a string instead of an object")
		return nil, false
	case v.kind != object:
		wrong("holds %s, not an object", v.kind)
		return nil, false
	}
	var unknown []string
	for _, key := range v.keys {
		if slices.Contains(keys, key) {
			continue
		}
		said := quote(key)
		for _, want := range keys {
			if like(key, want) {
				said += ", which is written " + want
			}
		}
		unknown = append(unknown, said)
	}
	if len(unknown) > 0 {
		wrong("has %s %s; allowed are %s", plural(len(unknown), "an unknown key", "unknown keys"), strings.Join(unknown, "; "), strings.Join(keys, " and "))
	}
	return v, len(unknown) > 0
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// redrive reads the RedrivePolicy of n, and nil if it has none that can be read.
func (c *check) redrive(n *node) *redrivePolicy {
	v, guess := c.policyObject(n, attrRedrive, goodRedrive, keyTarget, keyCount)
	if v == nil {
		return nil
	}
	var p redrivePolicy
	const targetFix = "name the queue as arn:aws:sqs:REGION:ACCOUNT:NAME: its QueueArn"
	switch target := v.members[keyTarget]; {
	case target == nil:
		if !guess {
			c.add("redrive-target-arn", n, attrRedrive+" has no "+keyTarget, targetFix)
		}
	case target.kind != text:
		c.add("redrive-target-arn", n, fmt.Sprintf("%s of %s is %s, not the ARN of a queue", keyTarget, attrRedrive, target.kind), targetFix)
	default:
		q, problem := parseARN(target.text)
		if problem != "" {
			c.add("redrive-target-arn", n, fmt.Sprintf("%s %s %s", keyTarget, quote(target.text), problem), targetFix)
		}
		p.target = q
	}
	const countFix = "set a whole number from 1 to 1000, such as 5 or \"5\""
	switch count := v.members[keyCount]; {
	case count == nil:
		if !guess {
			c.add("redrive-max-receive-range", n, attrRedrive+" has no "+keyCount, countFix)
		}
	case count.kind != text && count.kind != number:
		c.add("redrive-max-receive-range", n, fmt.Sprintf("%s is %s, not a number", keyCount, count.kind), countFix)
	default:
		value, err := strconv.Atoi(count.text)
		switch {
		case someNumber.MatchString(count.text) && (err != nil || value < 1 || value > maxReceives):
			c.add("redrive-max-receive-range", n, fmt.Sprintf("%s is %s, allowed are 1 to %d", keyCount, quoteNumber(count), maxReceives), countFix)
		case !wholeNumber.MatchString(count.text):
			c.add("redrive-max-receive-range", n, fmt.Sprintf("%s is %s, not a whole number in plain digits", keyCount, quoteNumber(count)), countFix)
		default:
			p.count = value
		}
	}
	return &p
}

func quoteNumber(v *value) string {
	if v.kind == text {
		return quote(v.text)
	}
	s := quote(v.text)
	return s[1 : len(s)-1]
}

// allow reads the RedriveAllowPolicy of n, and nil if it has none that can be
// read.
func (c *check) allow(n *node) *allowPolicy {
	v, guess := c.policyObject(n, attrAllow, goodAllow, keyPermit, keySources)
	if v == nil {
		return nil
	}
	var p allowPolicy
	permissions := []string{"allowAll", "denyAll", "byQueue"}
	fix := "set " + keyPermit + " to one of " + strings.Join(permissions, ", ")
	switch permission := v.members[keyPermit]; {
	case permission == nil && guess:
		return nil
	case permission == nil:
		c.add("redrive-json", n, attrAllow+" has no "+keyPermit, fix)
		return nil
	case permission.kind != text || !slices.Contains(permissions, permission.text):
		c.add("redrive-json", n, fmt.Sprintf("%s of %s is %s", keyPermit, attrAllow, quote(permission.text)), fix)
		return nil
	default:
		p.permission = permission.text
	}
	sources := v.members[keySources]
	if sources != nil && sources.kind != array {
		c.add("redrive-json", n, fmt.Sprintf("%s of %s is %s, not an array", keySources, attrAllow, sources.kind), "list ARNs of queues: [\"arn:aws:sqs:REGION:ACCOUNT:NAME\"]")
		return nil
	}
	if sources != nil {
		p.listed = len(sources.items)
		for _, item := range sources.items {
			q, problem := parseARN(item.text)
			if item.kind != text || problem != "" {
				c.add("redrive-json", n, fmt.Sprintf("%s of %s has %s, which is not the ARN of a queue", keySources, attrAllow, quote(item.text)), "list ARNs of queues")
				continue
			}
			p.sources = append(p.sources, q)
		}
	}
	switch {
	case p.permission != "byQueue" && sources != nil:
		c.add("allow-arns-without-byqueue", n, fmt.Sprintf("%s has %s with the permission %s, which takes none", attrAllow, keySources, p.permission), "remove the list, or set "+keyPermit+" to byQueue")
	case p.permission == "byQueue" && (p.listed == 0 || p.listed > maxSources):
		c.add("allow-count", n, fmt.Sprintf("%s lists %d sources, allowed are 1 to %d", attrAllow, p.listed, maxSources), "list the sources, or set "+keyPermit+" to allowAll if there are more")
	}
	return &p
}
