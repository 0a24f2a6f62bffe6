package redrive_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
)

const (
	arnSource = "arn:aws:sqs:us-east-1:123456789012:pedidos"
	arnDLQ    = "arn:aws:sqs:us-east-1:123456789012:pedidos-dlq"
	urlSource = "https://sqs.us-east-1.amazonaws.com/123456789012/pedidos"
	urlDLQ    = "https://sqs.us-east-1.amazonaws.com/123456789012/pedidos-dlq"
)

func policy(target string, count any) string {
	b, err := json.Marshal(map[string]any{"deadLetterTargetArn": target, "maxReceiveCount": count})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func export(url string, attributes map[string]any) []byte {
	b, err := json.Marshal(map[string]any{"QueueUrl": url, "Attributes": attributes})
	if err != nil {
		panic(err)
	}
	return b
}

func goodDLQ() []byte { return export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600"}) }

func withPolicy(v any) []byte { return export(urlSource, map[string]any{"RedrivePolicy": v}) }

// said lists the findings as "severity rule queue".
func said(report redrive.Report) (all []string) {
	for _, f := range report.Findings {
		all = append(all, fmt.Sprintf("%s %s %s", f.Severity, f.Rule, f.Stream))
	}
	return all
}

// What people get wrong in two files: each time one finding, and the right one.
func TestEachMistakeIsOneFinding(t *testing.T) {
	t.Parallel()
	good := withPolicy(policy(arnDLQ, "5"))
	text := func(s string) []byte { return withPolicy(s) }
	for name, test := range map[string]struct {
		source, deadLetter []byte
		want               string
		message            string // a part of it
	}{
		// Files.
		"empty file":          {nil, goodDLQ(), "export-json source.json", "source.json is empty"},
		"blank file":          {[]byte(" \n\t\n"), goodDLQ(), "export-json source.json", "is empty"},
		"byte order mark":     {append([]byte("\xef\xbb\xbf"), good...), goodDLQ(), "export-json source.json", "line 1, begins with a byte order mark"},
		"UTF-16":              {[]byte("\xff\xfe{\x00}\x00"), goodDLQ(), "export-json source.json", "UTF-16"},
		"Latin-1":             {good, []byte("{\n\"QueueUrl\": \"https://x/pedido-\xe7\"}"), "export-json dlq.json", "dlq.json, line 2, is not valid UTF-8"},
		"cut off":             {good, goodDLQ()[:40], "export-json dlq.json", "ends in the middle"},
		"not JSON":            {good, []byte("QueueUrl: x\n"), "export-json dlq.json", "line 1, is not JSON"},
		"single quotes":       {good, []byte("{'QueueUrl': 'x'}"), "export-json dlq.json", "is not JSON"},
		"comma at the end":    {good, []byte("{\n\"Attributes\": {\"a\": \"b\",\n}}"), "export-json dlq.json", "line 3, is not JSON"},
		"text behind":         {append(goodDLQ(), "\nrequest id 7"...), goodDLQ(), "export-json source.json", "line 2, has something behind the end of its JSON document: \"request id 7\""},
		"two documents":       {append(good, good...), goodDLQ(), "export-json source.json", "behind the end"},
		"key twice":           {[]byte(`{"QueueUrl":"` + urlSource + `","Attributes":{"DelaySeconds":"0",` + "\n" + `"DelaySeconds":"5"}}`), goodDLQ(), "export-json source.json", `line 2, has the key "DelaySeconds" twice`},
		"key twice, escaped":  {[]byte(`{"Attributes":{},"Attribut\u0065s":{}}`), goodDLQ(), "export-json source.json", `"Attributes" twice`},
		"too deep":            {[]byte(strings.Repeat("[", 100) + strings.Repeat("]", 100)), goodDLQ(), "export-json source.json", "nested more than"},
		"array":               {[]byte("[" + string(good) + "]"), goodDLQ(), "export-shape source.json", "is an array of 1"},
		"number":              {[]byte("5"), goodDLQ(), "export-shape source.json", "is a number, not an export"},
		"null":                {[]byte("null"), goodDLQ(), "export-shape source.json", "is null, not an export"},
		"string":              {[]byte(`"{}"`), goodDLQ(), "export-shape source.json", "is a string, not an export"},
		"no Attributes":       {[]byte(`{"QueueUrl":"` + urlSource + `"}`), goodDLQ(), "export-shape source.json", "has no Attributes"},
		"empty object":        {[]byte(`{}`), goodDLQ(), "export-shape source.json", "has no Attributes"},
		"Attributes null":     {[]byte(`{"QueueUrl":"` + urlSource + `","Attributes":null}`), goodDLQ(), "export-shape source.json", "Attributes that are null"},
		"Attributes array":    {[]byte(`{"QueueUrl":"` + urlSource + `","Attributes":[]}`), goodDLQ(), "export-shape source.json", "Attributes that are an array"},
		"attributes":          {[]byte(`{"QueueUrl":"` + urlSource + `","attributes":{}}`), goodDLQ(), "export-shape source.json", `the key "attributes", which is written Attributes`},
		"queue_url":           {[]byte(`{"queue_url":"` + urlSource + `","Attributes":{}}`), goodDLQ(), "export-shape source.json", `the key "queue_url", which is written QueueUrl`},
		"QueueUrl a number":   {[]byte(`{"QueueUrl":7,"Attributes":{}}`), goodDLQ(), "export-shape source.json", "QueueUrl that is a number"},
		"policy beside":       {[]byte(`{"QueueUrl":"` + urlSource + `","Attributes":{},` + "\n" + `"RedrivePolicy":"x"}`), goodDLQ(), "export-shape source.json", "line 2, has the attribute RedrivePolicy beside Attributes"},
		"bare attributes":     {[]byte(`{"QueueArn":"` + arnSource + `"}`), goodDLQ(), "export-shape source.json", "the attributes themselves"},
		"value true":          {export(urlSource, map[string]any{"RedrivePolicy": policy(arnDLQ, 5), "SqsManagedSseEnabled": true}), goodDLQ(), "attribute-type pedidos", `"SqsManagedSseEnabled" is true or false, not a string`},
		"many values":         {export(urlSource, map[string]any{"RedrivePolicy": policy(arnDLQ, 5), "DelaySeconds": 0, "VisibilityTimeout": 30}), goodDLQ(), "attribute-type pedidos", `"DelaySeconds" is a number, "VisibilityTimeout" is a number, not a string`},
		"value null":          {export(urlSource, map[string]any{"RedrivePolicy": policy(arnDLQ, 5), "Policy": nil}), goodDLQ(), "attribute-type pedidos", `"Policy" is null, not a string`},
		"policy null":         {withPolicy(nil), goodDLQ(), "attribute-type pedidos", `"RedrivePolicy" is null`},
		"same file":           {good, good, "queue-duplicate pedidos", "both files are exports of"},
		"same queue, two ids": {good, export("https://queue.amazonaws.com/123456789012/pedidos", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-duplicate pedidos", "both files"},
		"wrong order":         {goodDLQ(), good, "pair-order pedidos", "wrong order"},

		// Identity.
		"no URL, no ARN":         {[]byte(`{"Attributes":{"RedrivePolicy":` + quoted(policy(arnDLQ, 5)) + `}}`), goodDLQ(), "queue-identity source.json", "neither a QueueUrl nor a QueueArn"},
		"a name as URL":          {good, export("pedidos-dlq", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "is not the URL of a queue"},
		"URL without region":     {good, export("https://sqs.amazonaws.com/123456789012/pedidos-dlq", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "without a region"},
		"URL without account":    {good, export("https://sqs.us-east-1.amazonaws.com/pedidos-dlq", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "/ACCOUNT/NAME"},
		"URL ends in a slash":    {good, export(urlDLQ+"/", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "does not end in the name"},
		"URL with a query":       {good, export(urlDLQ+"?Action=x", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "behind the name"},
		"ARN of another":         {good, export(urlDLQ, map[string]any{"QueueArn": arnSource, "MessageRetentionPeriod": "1209600"}), "queue-identity pedidos-dlq", "of different queues"},
		"ARN of a topic":         {good, export(urlDLQ, map[string]any{"QueueArn": "arn:aws:sns:us-east-1:123456789012:pedidos-dlq", "MessageRetentionPeriod": "1209600"}), "queue-identity pedidos-dlq", `is of the service "sns"`},
		"name too long":          {export("https://sqs.us-east-1.amazonaws.com/123456789012/"+strings.Repeat("a", 81), map[string]any{"RedrivePolicy": policy(arnDLQ, 5)}), goodDLQ(), "queue-name " + strings.Repeat("a", 81), "81 characters"},
		"name with accent":       {export("https://sqs.us-east-1.amazonaws.com/123456789012/pedidos-ção", map[string]any{"RedrivePolicy": policy(arnDLQ, 5)}), goodDLQ(), "queue-name pedidos-ção", `'\u00e7'`},
		"FifoQueue without fifo": {export(urlSource, map[string]any{"FifoQueue": "true", "RedrivePolicy": policy(arnDLQ, 5)}), goodDLQ(), "queue-name pedidos", "FifoQueue is true"},

		// The policy.
		"empty policy":        {text(""), goodDLQ(), "redrive-missing pedidos", "RedrivePolicy is an empty string"},
		"number for policy":   {withPolicy(5), goodDLQ(), "redrive-json pedidos", "RedrivePolicy is a number"},
		"array for policy":    {withPolicy([]string{arnDLQ}), goodDLQ(), "redrive-json pedidos", "RedrivePolicy is an array"},
		"array in policy":     {text("[]"), goodDLQ(), "redrive-json pedidos", "holds an array, not an object"},
		"null in policy":      {text("null"), goodDLQ(), "redrive-json pedidos", "holds null, not an object"},
		"ARN as policy":       {text(arnDLQ), goodDLQ(), "redrive-json pedidos", "holds a text that is not JSON"},
		"encoded twice":       {text(quoted(policy(arnDLQ, 5))), goodDLQ(), "redrive-json pedidos", "encoded twice"},
		"text behind policy":  {text(policy(arnDLQ, 5) + "}"), goodDLQ(), "redrive-json pedidos", "behind the end"},
		"third key":           {text(`{"deadLetterTargetArn":"` + arnDLQ + `","maxReceiveCount":5,"visibilityTimeout":1}`), goodDLQ(), "redrive-json pedidos", `an unknown key "visibilityTimeout"`},
		"key of policy twice": {text(`{"deadLetterTargetArn":"` + arnDLQ + `","maxReceiveCount":5,"maxReceiveCount":6}`), goodDLQ(), "redrive-json pedidos", `"maxReceiveCount" twice`},
		"key in other case":   {text(`{"DeadLetterTargetArn":"` + arnDLQ + `","maxReceiveCount":5}`), goodDLQ(), "redrive-json pedidos", "which is written deadLetterTargetArn"},
		"no target":           {text(`{"maxReceiveCount":5}`), goodDLQ(), "redrive-target-arn pedidos", "has no deadLetterTargetArn"},
		"target null":         {text(`{"deadLetterTargetArn":null,"maxReceiveCount":5}`), goodDLQ(), "redrive-target-arn pedidos", "is null, not the ARN"},
		"target a name":       {text(policy("pedidos-dlq", 5)), goodDLQ(), "redrive-target-arn pedidos", "is not of the form"},
		"space at the end":    {text(policy(arnDLQ+" ", 5)), goodDLQ(), "redrive-target-arn pedidos", "the character ' '"},
		"Cyrillic е":          {text(policy(strings.Replace(arnDLQ, "e", "е", 1), 5)), goodDLQ(), "redrive-target-arn pedidos", `\u0435`},
		"account of 11":       {text(policy("arn:aws:sqs:us-east-1:12345678901:pedidos-dlq", 5)), goodDLQ(), "redrive-target-arn pedidos", "12 digits"},
		"no count":            {text(`{"deadLetterTargetArn":"` + arnDLQ + `"}`), goodDLQ(), "redrive-max-receive-range pedidos", "has no maxReceiveCount"},
		"count 0":             {text(policy(arnDLQ, 0)), goodDLQ(), "redrive-max-receive-range pedidos", "is 0, allowed are 1 to 1000"},
		"count -1":            {text(policy(arnDLQ, "-1")), goodDLQ(), "redrive-max-receive-range pedidos", `is "-1", allowed`},
		"count 1001":          {text(policy(arnDLQ, 1001)), goodDLQ(), "redrive-max-receive-range pedidos", "is 1001, allowed"},
		"count immense":       {text(policy(arnDLQ, "99999999999999999999")), goodDLQ(), "redrive-max-receive-range pedidos", "allowed are"},
		"count 2.5":           {text(policy(arnDLQ, 2.5)), goodDLQ(), "redrive-max-receive-range pedidos", "is 2.5, not a whole number"},
		"count 1e2":           {text(`{"deadLetterTargetArn":"` + arnDLQ + `","maxReceiveCount":1e2}`), goodDLQ(), "redrive-max-receive-range pedidos", "1e2"},
		"count empty":         {text(policy(arnDLQ, "")), goodDLQ(), "redrive-max-receive-range pedidos", `is "", not`},
		"count with space":    {text(policy(arnDLQ, " 5")), goodDLQ(), "redrive-max-receive-range pedidos", `is " 5", not`},
		"count in words":      {text(policy(arnDLQ, "five")), goodDLQ(), "redrive-max-receive-range pedidos", `is "five", not`},
		"count true":          {text(policy(arnDLQ, true)), goodDLQ(), "redrive-max-receive-range pedidos", "is true or false"},
		"count in Arabic":     {text(policy(arnDLQ, "٥")), goodDLQ(), "redrive-max-receive-range pedidos", `\u0665`},

		"policy in pieces":  {export(urlSource, map[string]any{"DeadLetterTargetArn": arnDLQ, "MaxReceiveCount": 5}), goodDLQ(), "redrive-toplevel pedidos", `"DeadLetterTargetArn" and "MaxReceiveCount" belong into`},
		"count with a zero": {text(policy(arnDLQ, "05")), goodDLQ(), "redrive-max-receive-range pedidos", `is "05", not`},

		// The dead letter queue.
		"another queue":            {text(policy(arnSource+"-dlq2", 5)), goodDLQ(), "pair-target pedidos", "the second file is of"},
		"other case":               {text(policy(strings.Replace(arnDLQ, "pedidos", "Pedidos", 1), 5)), goodDLQ(), "pair-target pedidos", "Pedidos-dlq"},
		"dlq elsewhere":            {good, export(strings.Replace(urlDLQ, "us-east-1", "eu-west-1", 1), map[string]any{"MessageRetentionPeriod": "1209600"}), "pair-target pedidos", "eu-west-1"},
		"dlq of others":            {good, export(strings.Replace(urlDLQ, "123456789012", "210987654321", 1), map[string]any{"MessageRetentionPeriod": "1209600"}), "pair-target pedidos", "210987654321"},
		"both agree on China":      {text(policy("arn:aws-cn:sqs:cn-north-1:123456789012:pedidos-dlq", 5)), export("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/pedidos-dlq", map[string]any{"MessageRetentionPeriod": "1209600"}), "redrive-partition pedidos", "aws-cn"},
		"no retention":             {good, export(urlDLQ, map[string]any{}), "dlq-retention-short pedidos-dlq", "345600 s (4 days), the default, no longer than its source pedidos, 345600 s (4 days), the default"},
		"retention shorter":        {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "345599"}), "dlq-retention-short pedidos-dlq", "345599 s"},
		"retention in words":       {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "14d"}), "attr-range pedidos-dlq", `"14d"`},
		"retention over 14 days":   {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209601"}), "attr-range pedidos-dlq", "60 to 1209600"},
		"dlq has a policy":         {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedrivePolicy": "x"}), "dlq-redrive pedidos-dlq", "has a RedrivePolicy"},
		"dlq leads back":           {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedrivePolicy": policy(arnSource, 5)}), "dlq-redrive pedidos-dlq", "has a RedrivePolicy"},
		"permission absent":        {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": `{"sourceQueueArns":[]}`}), "redrive-json pedidos-dlq", `has no redrivePermission`},
		"permission in other case": {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": `{"RedrivePermission":"byQueue"}`}), "redrive-json pedidos-dlq", `which is written redrivePermission`},
		"sources a text":           {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": `{"redrivePermission":"byQueue","sourceQueueArns":"` + arnSource + `"}`}), "redrive-json pedidos-dlq", `sourceQueueArns of RedriveAllowPolicy is a string, not an array`},
		"a source by name":         {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": `{"redrivePermission":"byQueue","sourceQueueArns":["` + arnSource + `","outra"]}`}), "redrive-json pedidos-dlq", `has "outra", which is not the ARN`},
		"allow policy empty":       {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": ""}), "redrive-json pedidos-dlq", `RedriveAllowPolicy is an empty string`},
		"FifoQueue yes":            {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "FifoQueue": "yes"}), "attr-range pedidos-dlq", `FifoQueue is "yes", allowed are true and false`},
		"password in the URL":      {good, export("https://u:hunter2@sqs.us-east-1.amazonaws.com/123456789012/pedidos-dlq", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-identity dlq.json", "has a user or a password"},
		"only .fifo":               {good, export("https://sqs.us-east-1.amazonaws.com/123456789012/.fifo", map[string]any{"MessageRetentionPeriod": "1209600"}), "queue-name .fifo", "has no name"},
		"target in no region":      {text(policy("arn:aws:sqs::123456789012:pedidos-dlq", 5)), goodDLQ(), "redrive-target-arn pedidos", `has the region ""`},
		"target of none of AWS":    {text(policy("arn:gcp:sqs:us-east-1:123456789012:pedidos-dlq", 5)), goodDLQ(), "redrive-target-arn pedidos", `the partition "gcp"`},
		"permission unknown":       {good, export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedriveAllowPolicy": `{"redrivePermission":"all"}`}), "redrive-json pedidos-dlq", `redrivePermission of RedriveAllowPolicy is "all"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := pair(test.source, test.deadLetter, redrive.Options{})
			if diff := cmp.Diff([]string{"error " + test.want}, said(report)); diff != "" {
				t.Fatalf("(-want +got):\n%s\n%+v", diff, report.Findings)
			}
			if f := report.Findings[0]; !strings.Contains(f.Message, test.message) || f.Fix == "" {
				t.Errorf("%q does not say %q, or there is no fix: %q", f.Message, test.message, f.Fix)
			}
		})
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A queue of any partition, an older host, an emulator: where the ARN is absent
// it follows from the URL.
func TestIdentityFollowsFromTheURL(t *testing.T) {
	t.Parallel()
	for url, arn := range map[string]string{
		"https://sqs.eu-west-1.amazonaws.com/123456789012/q-dlq":                     "arn:aws:sqs:eu-west-1:123456789012:q-dlq",
		"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q-dlq":                 "arn:aws-cn:sqs:cn-north-1:123456789012:q-dlq",
		"https://sqs.cn-northwest-1.amazonaws.com/123456789012/q-dlq":                "arn:aws-cn:sqs:cn-northwest-1:123456789012:q-dlq",
		"https://sqs.us-gov-west-1.amazonaws.com/123456789012/q-dlq":                 "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:q-dlq",
		"https://sqs.us-iso-east-1.c2s.ic.gov/123456789012/q-dlq":                    "arn:aws-iso:sqs:us-iso-east-1:123456789012:q-dlq",
		"https://sqs-fips.us-east-1.amazonaws.com/123456789012/q-dlq":                "arn:aws:sqs:us-east-1:123456789012:q-dlq",
		"https://sqs.sa-east-1.api.aws/123456789012/q-dlq":                           "arn:aws:sqs:sa-east-1:123456789012:q-dlq",
		"https://queue.amazonaws.com/123456789012/q-dlq":                             "arn:aws:sqs:us-east-1:123456789012:q-dlq",
		"https://sa-east-1.queue.amazonaws.com/123456789012/q-dlq":                   "arn:aws:sqs:sa-east-1:123456789012:q-dlq",
		"https://vpce-1-2.sqs.eu-west-3.vpce.amazonaws.com/123456789012/q-dlq":       "arn:aws:sqs:eu-west-3:123456789012:q-dlq",
		"http://localhost:4566/000000000000/q-dlq":                                   "arn:aws:sqs:sa-east-1:000000000000:q-dlq",
		"http://127.0.0.1:9324/queue/q-dlq":                                          "arn:aws:sqs:elasticmq:000000000000:q-dlq",
		"http://sqs.eu-central-1.localhost.localstack.cloud:4566/000000000000/q-dlq": "arn:aws:sqs:eu-central-1:000000000000:q-dlq",
		"http://localhost:4566/queue/eu-central-1/000000000000/q-dlq":                "arn:aws:sqs:eu-central-1:000000000000:q-dlq",
	} {
		source := redrive.Export{URL: strings.TrimSuffix(url, "-dlq"), Attributes: map[string]string{"RedrivePolicy": policy(arn, "5")}}
		deadLetter := redrive.Export{URL: url, Attributes: map[string]string{"MessageRetentionPeriod": "1209600"}}
		if got := said(redrive.CheckPair(source, deadLetter, redrive.Options{})); len(got) > 0 {
			t.Errorf("%s as %s: %v", url, arn, got)
		}
		// The ARN alone does as well.
		deadLetter = redrive.Export{Attributes: map[string]string{"QueueArn": arn, "MessageRetentionPeriod": "1209600"}}
		if got := said(redrive.CheckPair(source, deadLetter, redrive.Options{})); len(got) > 0 {
			t.Errorf("%s beside %s: %v", url, arn, got)
		}
	}
}

// What the URL tells is compared.
func TestPlaceIsComparedAsFarAsItIsKnown(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][]string{
		"https://sqs.us-east-1.amazonaws.com/123456789012/q":                     nil,
		"https://sqs.us-east-2.amazonaws.com/123456789012/q":                     {"error redrive-region q"},
		"https://us-east-2.queue.amazonaws.com/123456789012/q":                   {"error redrive-region q"},
		"https://sqs.us-east-1.amazonaws.com/123456789013/q":                     {"error redrive-account q"},
		"https://sqs.us-east-2.amazonaws.com/123456789013/q":                     {"error redrive-region q", "error redrive-account q"},
		"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q":                 {"error redrive-partition q"},
		"http://localhost:4566/123456789012/q":                                   nil,
		"http://localhost:4566/000000000000/q":                                   {"error redrive-account q"},
		"http://sqs.us-east-2.localhost.localstack.cloud:4566/123456789012/q":    {"error redrive-region q"},
		"http://localhost:9324/queue/q":                                          nil,
		"http://us-east-1.queue.localhost.localstack.cloud:4566/123456789012/q":  nil,
		"https://us-gov-east-1.queue.amazonaws.com/123456789012/q":               {"error redrive-partition q"},
		"http://us-east-2.queue.localhost.localstack.cloud:4566/123456789012/q/": {"error queue-identity a"},
	} {
		source := redrive.Export{Origin: "a", URL: url, Attributes: map[string]string{"RedrivePolicy": policy("arn:aws:sqs:us-east-1:123456789012:q-dlq", "5")}}
		deadLetter := redrive.Export{URL: "https://sqs.us-east-1.amazonaws.com/123456789012/q-dlq", Attributes: map[string]string{"MessageRetentionPeriod": "1209600"}}
		if diff := cmp.Diff(want, said(redrive.CheckPair(source, deadLetter, redrive.Options{}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

// Counts are text or a number, and both ends are allowed.
func TestCountsThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, count := range []any{2, "2", 5, "5", 1000, "1000"} {
		report := pair(withPolicy(policy(arnDLQ, count)), goodDLQ(), redrive.Options{})
		if len(report.Findings) > 0 || fmt.Sprint(report.Links[0].MaxReceiveCount) != fmt.Sprint(count) {
			t.Errorf("%v: %+v", count, report)
		}
	}
	for _, count := range []any{1, "1"} {
		if got := said(pair(withPolicy(policy(arnDLQ, count)), goodDLQ(), redrive.Options{})); len(got) != 1 || got[0] != "warning mrc-one pedidos" {
			t.Errorf("%v: %v", count, got)
		}
	}
}

// A template may have objects and numbers, and is checked like an export.
func TestTemplatesMayHaveObjects(t *testing.T) {
	t.Parallel()
	template := redrive.Options{Template: true}
	source := export(urlSource, map[string]any{"VisibilityTimeout": 90, "RedrivePolicy": map[string]any{"deadLetterTargetArn": arnDLQ, "maxReceiveCount": 5}})
	deadLetter := export(urlDLQ, map[string]any{"MessageRetentionPeriod": 1209600, "SqsManagedSseEnabled": true, "RedriveAllowPolicy": map[string]any{"redrivePermission": "allowAll"}})
	report := pair(source, deadLetter, template)
	if len(report.Findings) > 0 || report.Links[0].String() != "DLQ=pedidos-dlq maxReceiveCount=5 VisibilityTimeout=90s" {
		t.Errorf("%+v", report)
	}
	want := []string{"error attribute-type pedidos", "error attribute-type pedidos-dlq", "error redrive-object pedidos-dlq", "error redrive-object pedidos"}
	if diff := cmp.Diff(want, said(pair(source, deadLetter, redrive.Options{}))); diff != "" {
		t.Errorf("as an export (-want +got):\n%s", diff)
	}
	source = withPolicy(map[string]any{"deadLetterTargetArn": arnDLQ, "maxReceiveCount": 0})
	if got := said(pair(source, goodDLQ(), template)); len(got) != 1 || got[0] != "error redrive-max-receive-range pedidos" {
		t.Errorf("a template with a mistake: %v", got)
	}
}

// Everything that is wrong is said at once.
func TestAllMistakesAreFoundAtOnce(t *testing.T) {
	t.Parallel()
	source := export(urlSource, map[string]any{
		"DelaySeconds": "-1", "VisibilityTimeout": "0",
		"RedrivePolicy": policy("arn:aws:sqs:us-east-2:210987654321:pedidos-dlq", 0),
	})
	deadLetter := export(urlDLQ, map[string]any{"MessageRetentionPeriod": "1209600", "RedrivePolicy": "{}"})
	want := []string{
		"error attr-range pedidos", "error visibility-zero pedidos", "error dlq-redrive pedidos-dlq",
		"error redrive-max-receive-range pedidos", "error redrive-region pedidos", "error redrive-account pedidos",
	}
	if diff := cmp.Diff(want, said(pair(source, deadLetter, redrive.Options{}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func queues(t *testing.T, all map[string]map[string]string) (exports []redrive.Export) {
	t.Helper()
	for name, attributes := range all {
		exports = append(exports, redrive.Export{URL: "https://sqs.us-east-1.amazonaws.com/123456789012/" + name, Attributes: attributes})
	}
	return exports
}

func errorsOf(report redrive.Report) (all []string) {
	for _, f := range report.Findings {
		if f.Severity == adapters.SeverityError {
			all = append(all, f.Rule+" "+f.Stream)
		}
	}
	return all
}

// S40: a dead letter queue needs no dead letter queue of its own. Others need
// one, unless they are excluded by name.
func TestRolesFollowFromTheGraph(t *testing.T) {
	t.Parallel()
	exports := queues(t, map[string]map[string]string{
		"pedidos":         {"RedrivePolicy": policy(arnDLQ, "5")},
		"pedidos-retry":   {"RedrivePolicy": policy(arnDLQ, "5")},
		"pedidos-dlq":     {"MessageRetentionPeriod": "1209600"},
		"pedidos-parking": {},
	})
	for _, test := range []struct {
		opts redrive.Options
		want []string
	}{
		{redrive.Options{}, []string{"redrive-missing pedidos-parking"}},
		{redrive.Options{Exclude: []string{"pedidos-parking"}}, nil},
		{redrive.Options{Exclude: []string{"*-parking"}}, nil},
		{redrive.Options{Exclude: []string{"parking"}}, []string{"redrive-missing pedidos-parking"}},
		{redrive.Options{Application: redrive.Application{Roles: map[string]adapters.Stream{"pedidos-parking": adapters.StreamParking}}}, nil},
	} {
		report := redrive.Check(exports, test.opts)
		if diff := cmp.Diff(test.want, errorsOf(report)); diff != "" || report.Queues != 4 || len(report.Links) != 2 {
			t.Errorf("%+v (-want +got):\n%s\n%+v", test.opts, diff, report)
		}
	}
}

// S39: a target that does not exist. SQS keeps the messages in the source.
func TestTargetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	exports := queues(t, map[string]map[string]string{"pedidos": {"RedrivePolicy": policy(arnDLQ, "5")}})
	if diff := cmp.Diff([]string{"redrive-dangling pedidos"}, errorsOf(redrive.Check(exports, redrive.Options{}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := said(redrive.Check(exports, redrive.Options{Partial: true})); len(got) != 1 || got[0] != "warning redrive-dangling pedidos" {
		t.Errorf("with other queues unknown: %v", got)
	}
}

// S33: a dead letter queue that keeps messages for less time than they were on
// their way: they vanish on arrival.
func TestRetentionShorterThanTheWayIntoTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	exports := queues(t, map[string]map[string]string{
		"pedidos":     {"RedrivePolicy": policy(arnDLQ, "5"), "MessageRetentionPeriod": "1209600"},
		"outra":       {"RedrivePolicy": policy(arnDLQ, "14"), "MessageRetentionPeriod": "86400", "VisibilityTimeout": "43200"},
		"pedidos-dlq": {"MessageRetentionPeriod": "604800"},
	})
	got := errorsOf(redrive.Check(exports, redrive.Options{}))
	if len(got) != 2 || got[0] == got[1] || !strings.HasSuffix(got[0], " pedidos-dlq") || !strings.HasSuffix(got[1], " pedidos-dlq") {
		t.Errorf("%v", got)
	}
}

// An excluded queue is not spoken of, and neither is what only concerns it; the
// others of a loop are.
func TestExcludedQueuesAreNotSpokenOf(t *testing.T) {
	t.Parallel()
	arn := func(name string) string { return "arn:aws:sqs:us-east-1:123456789012:" + name }
	exports := queues(t, map[string]map[string]string{
		"a":   {"RedrivePolicy": policy(arn("b"), 5)},
		"b":   {"RedrivePolicy": policy(arn("a"), 5)},
		"old": {"RedrivePolicy": policy(arn("dlq"), 5), "MessageRetentionPeriod": "1209600", "DelaySeconds": "7000"},
		"dlq": {"MessageRetentionPeriod": "1209600"},
	})
	for _, test := range []struct{ exclude, want []string }{
		{[]string{"old"}, []string{"redrive-cycle a"}},
		{[]string{"old", "a"}, []string{"redrive-cycle b"}},
		{[]string{"old", "[ab]"}, nil},
		{[]string{"?", "dlq"}, []string{"attr-range old"}},
	} {
		if diff := cmp.Diff(test.want, errorsOf(redrive.Check(exports, redrive.Options{Exclude: test.exclude}))); diff != "" {
			t.Errorf("without %v (-want +got):\n%s", test.exclude, diff)
		}
	}
}

// Two exports of one queue, by whatever host: nobody knows which one holds.
func TestQueueThatWasExportedTwice(t *testing.T) {
	t.Parallel()
	data := []byte("[" + string(goodDLQ()) + "," + string(goodDLQ()) + "]")
	exports, _ := redrive.Parse("all.json", data)
	report := redrive.Check(exports, redrive.Options{Exclude: []string{"none"}})
	if f := report.Findings[0]; f.Rule != "queue-duplicate" || !strings.Contains(f.Message, "in all.json[0] and in all.json[1]") || report.Queues != 1 {
		t.Errorf("%+v", report)
	}
}

func TestLoopsAreNamedOnce(t *testing.T) {
	t.Parallel()
	arn := func(name string) string { return "arn:aws:sqs:us-east-1:123456789012:" + name }
	exports := queues(t, map[string]map[string]string{
		"a": {"RedrivePolicy": policy(arn("b"), 5)}, "b": {"RedrivePolicy": policy(arn("a"), 5)},
		"x": {"RedrivePolicy": policy(arn("y"), 5)}, "y": {"RedrivePolicy": policy(arn("z"), 5)}, "z": {"RedrivePolicy": policy(arn("x"), 5)},
		"s": {"RedrivePolicy": policy(arn("s"), 5)},
	})
	got := map[string]int{}
	for _, e := range errorsOf(redrive.Check(exports, redrive.Options{})) {
		got[e]++
	}
	if diff := cmp.Diff(map[string]int{"redrive-cycle a": 1, "redrive-cycle x": 1, "redrive-self s": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Folders hold what the tools of others write: an export, an array of them, or an
// object with one for each queue.
func TestFilesWithSeveralExports(t *testing.T) {
	t.Parallel()
	a, b := string(withPolicy(policy(arnDLQ, "5"))), string(goodDLQ())
	onlyAttributes := `{"Attributes":{"QueueArn":"` + arnDLQ + `","MessageRetentionPeriod":"1209600"}}`
	for _, data := range []string{
		"[" + a + "," + b + "]",
		`{"pedidos":` + a + `,"pedidos-dlq":` + b + `}`,
		"[" + a + "," + onlyAttributes + "]",
		`{"` + urlSource + `":` + a + `,"` + urlDLQ + `":{"Attributes":{"MessageRetentionPeriod":"1209600"}}}`,
	} {
		exports, findings := redrive.Parse("all.json", []byte(data))
		if report := redrive.Check(exports, redrive.Options{}); len(findings) > 0 || len(report.Links) != 1 || len(errorsOf(report)) > 0 {
			t.Errorf("%s:\n%+v\n%+v", data, findings, report)
		}
	}
	for data, want := range map[string]string{
		"[]":                     "error export-shape all.json: all.json, line 1, holds no export",
		"{}":                     "error export-shape all.json: all.json, line 1, holds no export",
		"7":                      "error export-shape all.json: all.json, line 1, is a number, not an export",
		"[7]":                    "error export-shape all.json[0]: all.json[0], line 1, is a number, not an export",
		"[\n{}]":                 "error export-shape all.json[0]: all.json[0], line 2, has no Attributes",
		`{"pedidos":[]}`:         `error export-shape all.json["pedidos"]: all.json["pedidos"], line 1, is an array, not an export`,
		`{"QueueUrls":["a"]}`:    `error export-shape all.json["QueueUrls"]: all.json["QueueUrls"], line 1, is an array, not an export`,
		`{"DelaySeconds":"0"}`:   "error export-shape all.json: all.json, line 1, has the attributes themselves where Attributes should be",
		`{"a":{"Attributes":5}}`: `error export-shape all.json["a"]: all.json["a"], line 1, has Attributes that are a number, not an object`,
	} {
		_, findings := redrive.Parse("all.json", []byte(data))
		if len(findings) != 1 || fmt.Sprintf("%s %s %s: %s", findings[0].Severity, findings[0].Rule, findings[0].Stream, findings[0].Message) != want {
			t.Errorf("%s: %+v, want %s", data, findings, want)
		}
	}
}

// Rules with two sides: the other one of each.
func TestRulesThatKnowTheApplication(t *testing.T) {
	t.Parallel()
	exports := func(source map[string]string) []redrive.Export {
		source["RedrivePolicy"] = policy(arnDLQ, 5)
		return queues(t, map[string]map[string]string{"pedidos": source, "pedidos-dlq": {"MessageRetentionPeriod": "1209600"}})
	}
	for name, test := range map[string]struct {
		source map[string]string
		app    redrive.Application
		want   []string
	}{
		"slow consumers":            {map[string]string{"MessageRetentionPeriod": "3600"}, redrive.Application{Mode: redrive.ModeCopy, Drain: time.Hour}, []string{"source-retention-schedule pedidos"}},
		"consumers fast enough":     {map[string]string{"MessageRetentionPeriod": "4500"}, redrive.Application{Mode: redrive.ModeCopy, Drain: time.Hour}, nil},
		"retries of copies":         {map[string]string{"MessageRetentionPeriod": "3600"}, redrive.Application{Mode: redrive.ModeCopy, Schedule: 2 * time.Hour}, nil},
		"long back-off":             {map[string]string{}, redrive.Application{Mode: redrive.ModeInPlace, MaxBackoff: 70 * time.Hour}, []string{"dlq-retention-worstcase pedidos-dlq"}},
		"long back-off of copies":   {map[string]string{}, redrive.Application{Mode: redrive.ModeCopy, MaxBackoff: 70 * time.Hour}, nil},
		"no visibility at all":      {map[string]string{"VisibilityTimeout": "0"}, redrive.Application{Heartbeat: redrive.NoHeartbeat, HandlerTimeout: time.Minute}, []string{"visibility-zero pedidos"}},
		"heartbeat for the handler": {map[string]string{}, redrive.Application{Heartbeat: 10 * time.Second, HandlerTimeout: time.Minute}, nil},
		"fewer attempts than count": {map[string]string{}, redrive.Application{Mode: redrive.ModeInPlace, Attempts: 4}, nil},
	} {
		if diff := cmp.Diff(test.want, errorsOf(redrive.Check(exports(test.source), redrive.Options{Application: test.app}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// "Principal": "*" is everybody in each of its forms, unless there is a condition.
func TestAccessPoliciesForEverybody(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]bool{
		`{"Effect":"Allow","Principal":"*"}`:                                                  true,
		`[{"Effect":"Deny","Principal":"*"},{"Effect":"Allow","Principal":{"AWS":"*"}}]`:      true,
		`{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::123456789012:root","*"]}}`:       true,
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"}}`:             false,
		`{"Effect":"Allow","Principal":{"Service":"sns.amazonaws.com"}}`:                      false,
		`{"Effect":"Deny","Principal":"*"}`:                                                   false,
		`{"Effect":"Allow","Principal":"*","Condition":{"StringEquals":{"aws:SourceArn":1}}}`: false,
		`{"Effect":"Allow"}`: false,
		`7`:                  false,
	} {
		report := redrive.Check([]redrive.Export{{URL: urlSource, Attributes: map[string]string{"Policy": `{"Statement":` + statement + `}`}}}, redrive.Options{})
		if got := slices.Contains(said(report), "warning policy-public pedidos"); got != want {
			t.Errorf("%s: %v", statement, got)
		}
	}
}

func TestApplicationIsReadStrictly(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"roles":{"a":"dlq"},"heartbeat":"off","batch":10}`: "",
		`{"heartbeat":"10s"}`:                                "",
		`{"role":{}}`:                                        "unknown field",
		`{"roles":{"a":"x"}}`:                                `"x" of a is none of`,
		`{"mode":"both"}`:                                    `"both" is neither`,
		`{"batch":-1}`:                                       "-1 is negative",
		`{"schedule":"-1s"}`:                                 "-1s is negative",
		`{"schedule":"1"}`:                                   "missing unit",
		`{"schedule":1}`:                                     "cannot unmarshal number",
		`{"batch":1,"batch":2}`:                              "twice",
		`{"batch":1} {}`:                                     "behind the end",
		``:                                                   "is empty",
	} {
		_, err := redrive.ParseApplication([]byte(data))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", data, err, want)
		}
	}
	if err := (redrive.Options{Exclude: []string{"[", ""}}).Validate(); err == nil || strings.Count(err.Error(), "is no pattern") != 2 {
		t.Errorf("%v", err)
	}
}

func TestRulesReturnsACopy(t *testing.T) {
	t.Parallel()
	rules := redrive.Rules()
	name := rules[0].Name
	rules[0].Severities[0], rules[0].Name = "spoiled", "spoiled"
	if again := redrive.Rules(); again[0].Name != name || again[0].Severities[0] != adapters.SeverityError {
		t.Errorf("changing the returned table changed the rules: %+v", again[0])
	}
}

// Whatever a file holds, there is an export or a finding, and no panic.
func FuzzParse(f *testing.F) {
	good := withPolicy(policy(arnDLQ, "5"))
	for _, seed := range [][]byte{
		good, goodDLQ(), nil, []byte("[]"), []byte("{}"), []byte("\xef\xbb\xbf{}"), append(good, good...), []byte(`{"a":{"Attributes":{}}}`),
		[]byte("[" + string(good) + "," + string(goodDLQ()) + "]"), []byte(`{"QueueUrl":"http://[::1","Attributes":{"QueueArn":"arn:::::","DelaySeconds":1e9}}`),
		[]byte(`[{"Attributes":{"QueueArn":"` + arnDLQ + `","RedriveAllowPolicy":"{\"redrivePermission\":\"byQueue\",\"sourceQueueArns\":[1]}","Policy":"{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":{\"AWS\":[\"*\"]}}}"}}]`),
	} {
		f.Add(seed)
	}
	known := map[string]bool{}
	for _, rule := range redrive.Rules() {
		known[rule.Name] = true
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		one, alone := redrive.ParseOne("one", data)
		many, several := redrive.Parse("many", data)
		if len(many) == 0 && len(several) == 0 {
			t.Fatal("neither an export nor a finding")
		}
		all := append(alone, several...)
		for _, opts := range []redrive.Options{{}, {Template: true}} {
			all = append(all, redrive.CheckPair(one, redrive.Export{URL: urlDLQ}, opts).Findings...)
			all = append(all, redrive.CheckPair(redrive.Export{URL: urlSource, Attributes: map[string]string{"RedrivePolicy": string(data)}}, one, opts).Findings...)
			all = append(all, redrive.Check(append(many, one), opts).Findings...)
		}
		for _, finding := range all {
			if !known[finding.Rule] || finding.Stream == "" || finding.Message == "" || finding.Fix == "" {
				t.Errorf("%+v", finding)
			}
		}
	})
}

// Where the rules about polls, names and age are silent.
func TestPollsNamesAndAgeThatAreWell(t *testing.T) {
	t.Parallel()
	queues := func(source, deadLetter map[string]any) []redrive.Export {
		t.Helper()
		source["RedrivePolicy"] = policy(arnDLQ, 5)
		var all []redrive.Export
		for url, attributes := range map[string]map[string]any{urlSource: source, urlDLQ: deadLetter} {
			more, findings := redrive.Parse("queues.json", export(url, attributes))
			if len(findings) > 0 {
				t.Fatal(findings)
			}
			all = append(all, more...)
		}
		return all
	}
	long := strings.Repeat("a", 90)
	for name, test := range map[string]struct {
		source, deadLetter map[string]any
		opts               redrive.Options
		want               string // the one rule of these that is found
	}{
		"visibility of a long poll":             {map[string]any{"VisibilityTimeout": "20"}, nil, redrive.Options{}, ""},
		"visibility of the application's poll":  {map[string]any{"VisibilityTimeout": "5"}, nil, redrive.Options{Application: redrive.Application{Poll: 5 * time.Second}}, ""},
		"visibility below it":                   {map[string]any{"VisibilityTimeout": "4"}, nil, redrive.Options{Application: redrive.Application{Poll: 5 * time.Second}}, "visibility-poll"},
		"short polls, if anybody knew":          {map[string]any{"ReceiveMessageWaitTimeSeconds": "0"}, nil, redrive.Options{}, ""},
		"clients ask for a wait":                {map[string]any{"ReceiveMessageWaitTimeSeconds": "0"}, nil, redrive.Options{Application: redrive.Application{Poll: time.Second}}, ""},
		"the queue has a wait":                  {map[string]any{"ReceiveMessageWaitTimeSeconds": "20"}, nil, redrive.Options{Application: redrive.Application{Poll: redrive.NoPoll}}, ""},
		"absent, and its default is no wait":    {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Poll: redrive.NoPoll}}, "short-poll"},
		"a topic as its queue is named":         {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Topics: map[string]string{"pedidos": "pedidos"}}}, ""},
		"a topic with a queue of another name":  {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Topics: map[string]string{long: "pedidos"}}}, ""},
		"three quarters of the retention":       {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Oldest: map[string]time.Duration{"pedidos-dlq": 252 * time.Hour}}}, ""},
		"more than three quarters":              {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Oldest: map[string]time.Duration{"pedidos-dlq": 252*time.Hour + 1}}}, "dlq-old"},
		"of a source":                           {map[string]any{}, nil, redrive.Options{Application: redrive.Application{Oldest: map[string]time.Duration{"pedidos": 95 * time.Hour}}}, ""},
		"a retention that a file does not tell": {map[string]any{}, map[string]any{}, redrive.Options{}, "dlq-retention-short"},
		"that a live server does not tell":      {map[string]any{}, map[string]any{}, redrive.Options{Live: true}, "retention-unknown"},
		"of which it tells the source's":        {map[string]any{"MessageRetentionPeriod": "345600"}, map[string]any{}, redrive.Options{Live: true}, "retention-unknown"},
	} {
		if test.deadLetter == nil {
			test.deadLetter = map[string]any{"MessageRetentionPeriod": "1209600"}
		}
		mine := []string{"visibility-poll", "short-poll", "name-truncated", "dlq-old", "dlq-retention-short", "retention-unknown"}
		var got []string
		for _, f := range redrive.Check(queues(test.source, test.deadLetter), test.opts).Findings {
			if slices.Contains(mine, f.Rule) {
				got = append(got, f.Rule)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
