package triage_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/triage"
)

func ExampleRead() {
	var lines strings.Builder
	outage := time.Date(2026, 10, 3, 9, 0, 0, 0, time.UTC)
	for i := range 40 {
		fmt.Fprintf(&lines, `{"errorClass":"dependency_timeout","errorMessage":"charge order %d: timeout after %dms","consumerVersion":"1.8.2","firstAttemptAt":%q}`+"\n",
			i, 30_000+i, outage.Add(time.Duration(i)*time.Minute).Format(time.RFC3339))
	}
	pass, err := triage.Read(context.Background(), strings.NewReader(lines.String()), triage.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := triage.NewReport(pass.Groups, triage.Options{Now: outage.Add(24 * time.Hour)})
	for _, g := range report.Groups {
		fmt.Println(g.Count, g.ConsumerVersion, g.Signature)
		fmt.Println(g.Verdict+":", g.VerdictReason)
		fmt.Println(g.Suggestion)
	}
	// Output:
	// 40 1.8.2 charge order <n>: timeout after <dur>
	// incident: all of 40 in one episode of 39m that ended 23h21m ago
	// Replay it, a canary first.
}
