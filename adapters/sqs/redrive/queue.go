package redrive

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// queue says which queue it is. Empty fields, except for the name, are unknown:
// the address of an emulator has no region.
type queue struct {
	partition, region, account, name string
}

func (q queue) known() bool { return q.name != "" }

func (q queue) fifo() bool { return strings.HasSuffix(q.name, fifoSuffix) }

// is reports whether both are one queue, as far as known.
func (q queue) is(other queue) bool {
	return q.name == other.name && same(q.account, other.account) && same(q.region, other.region) && same(q.partition, other.partition)
}

func same(a, b string) bool { return a == "" || b == "" || a == b }

// String is the ARN, or what is known of it.
func (q queue) String() string {
	unknown := func(s string) string {
		if s == "" {
			return "?"
		}
		return s
	}
	return fmt.Sprintf("arn:%s:sqs:%s:%s:%s", unknown(q.partition), unknown(q.region), unknown(q.account), q.name)
}

const (
	fifoSuffix = ".fifo"
	maxName    = 80
)

var (
	partitionForm = regexp.MustCompile(`^aws(-[a-z]+)*$`)
	regionForm    = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	accountForm   = regexp.MustCompile(`^[0-9]{12}$`)
	// awsRegion is stricter: a label of a host that cannot be anything else.
	awsRegion = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
)

// nameProblem returns what is wrong with the name of a queue, or "".
func nameProblem(name string) string {
	base := strings.TrimSuffix(name, fifoSuffix)
	switch {
	case base == "":
		return "has no name"
	case len(name) > maxName:
		return fmt.Sprintf("has a name of %d characters; %d are allowed, .fifo included", len(name), maxName)
	}
	for _, r := range base {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		case r == '.':
			return "has a dot in its name; only .fifo at the end may have one"
		default:
			return fmt.Sprintf("has the character %+q in its name; letters without accents, digits, - and _ are allowed", r)
		}
	}
	return ""
}

// parseARN reads the ARN of a queue. The problem is a part of a sentence that
// begins with the ARN; it is "" if there is none.
func parseARN(arn string) (q queue, problem string) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[0] != "arn" {
		return queue{}, "is not of the form arn:PARTITION:sqs:REGION:ACCOUNT:NAME"
	}
	q = queue{parts[1], parts[3], parts[4], parts[5]}
	switch {
	case !partitionForm.MatchString(q.partition):
		return queue{}, fmt.Sprintf("has the partition %s, which is none of AWS", quote(q.partition))
	case parts[2] != "sqs":
		return queue{}, fmt.Sprintf("is of the service %s, not sqs", quote(parts[2]))
	case !regionForm.MatchString(q.region):
		return queue{}, fmt.Sprintf("has the region %s", quote(q.region))
	case !accountForm.MatchString(q.account):
		return queue{}, fmt.Sprintf("has the account %s; it has 12 digits", quote(q.account))
	}
	if p := nameProblem(q.name); p != "" {
		return queue{}, p
	}
	return q, ""
}

// suffixes are the domains of AWS with their partitions. A region of GovCloud or
// of China tells more than the domain.
var suffixes = []struct{ domain, partition string }{
	{".amazonaws.com.cn", "aws-cn"},
	{".api.amazonwebservices.com.cn", "aws-cn"},
	{".amazonaws.com", "aws"},
	{".api.aws", "aws"},
	{".amazonaws.eu", "aws-eusc"},
	{".c2s.ic.gov", "aws-iso"},
	{".sc2s.sgov.gov", "aws-iso-b"},
	{".cloud.adc-e.uk", "aws-iso-e"},
	{".csp.hci.ic.gov", "aws-iso-f"},
}

// parseURL reads the URL of a queue: of today's hosts, of older ones
// (REGION.queue.amazonaws.com, queue.amazonaws.com), of endpoints in a VPC, and
// of emulators, whose hosts say little. It does not look at the name. The problem
// is a part of a sentence that begins with the URL; it is "" if there is none.
func parseURL(raw string) (q queue, aws bool, problem string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return queue{}, false, "is not the URL of a queue: https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
	case u.User != nil:
		return queue{}, false, "has a user or a password in it"
	case u.RawQuery != "" || u.Fragment != "":
		return queue{}, false, "has something behind the name of the queue"
	}
	segments := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	q.name = segments[len(segments)-1]
	if q.name == "" {
		return queue{}, false, "does not end in the name of a queue"
	}
	if len(segments) > 1 && accountForm.MatchString(segments[len(segments)-2]) {
		q.account = segments[len(segments)-2]
	}

	host := strings.ToLower(u.Hostname())
	labels := strings.Split(host, ".")
	for i, label := range labels {
		switch {
		case (label == "sqs" || label == "sqs-fips") && i+1 < len(labels) && awsRegion.MatchString(labels[i+1]):
			q.region = labels[i+1]
		case label == "queue" && i > 0 && awsRegion.MatchString(labels[i-1]):
			q.region = labels[i-1]
		}
	}
	for _, s := range suffixes {
		if !strings.HasSuffix(host, s.domain) {
			continue
		}
		q.partition = s.partition
		if host == "queue.amazonaws.com" {
			q.region = "us-east-1"
		}
		switch {
		case strings.HasPrefix(q.region, "us-gov-"):
			q.partition = "aws-us-gov"
		case strings.HasPrefix(q.region, "cn-"):
			q.partition = "aws-cn"
		}
		switch {
		case q.region == "":
			return queue{}, true, "has a host of AWS without a region"
		case q.account == "" || len(segments) != 2:
			return queue{}, true, "does not end in /ACCOUNT/NAME, with the 12 digits of an account"
		}
		return q, true, ""
	}
	// An emulator: /queue/REGION/ACCOUNT/NAME is a form of one of them.
	if n := len(segments); n >= 4 && segments[n-4] == "queue" && regionForm.MatchString(segments[n-3]) {
		q.region = segments[n-3]
	}
	return q, false, ""
}

// quote shows a text from outside, so that what only looks like ASCII is seen,
// and cuts it.
func quote(s string) string {
	const most = 120
	r := []rune(s)
	if len(r) > most {
		return fmt.Sprintf("%+q...", string(r[:most]))
	}
	return fmt.Sprintf("%+q", s)
}
