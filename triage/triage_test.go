package triage_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// moments is a timeline under construction.
type moments []time.Time

// burst adds n moments, evenly over a length of time.
func (m moments) burst(first time.Time, length time.Duration, n int) moments {
	for i := range n {
		m = append(m, first.Add(time.Duration(float64(length)*float64(i)/float64(max(n-1, 1)))))
	}
	return m
}

func ago(d time.Duration) time.Time { return now.Add(-d) }

const day = 24 * time.Hour

func TestVerdicts(t *testing.T) {
	t.Parallel()
	var none moments
	daily := none
	for d := range 300 {
		daily = daily.burst(ago(time.Duration(310-d)*day), 20*time.Minute, 50)
	}
	for name, c := range map[string]struct {
		at   moments
		want triage.Verdict
		says string
	}{
		"one":                      {none.burst(ago(day), 0, 1), triage.Isolated, "1 message"},
		"a handful":                {none.burst(ago(90*day), 80*day, 5), triage.Isolated, "5 messages"},
		"two hours":                {none.burst(ago(90*day), 2*time.Hour, 4000), triage.Incident, "all of 4,000 in one episode of 2h that ended"},
		"two hours, few":           {none.burst(ago(9*day), 2*time.Hour, 8), triage.Incident, "all of 8"},
		"at one moment":            {none.burst(ago(9*day), 0, 500), triage.Incident, "episode of 0s"},
		"until now":                {none.burst(ago(2*time.Hour), 2*time.Hour, 400), triage.Ongoing, "has not ended"},
		"for a day until now":      {none.burst(ago(day), day, 400), triage.Ongoing, "has not ended"},
		"ended half an hour ago":   {none.burst(ago(150*time.Minute), 2*time.Hour, 400), triage.Ongoing, "has not ended"},
		"ended two hours ago":      {none.burst(ago(4*time.Hour), 2*time.Hour, 400), triage.Incident, "2h ago"},
		"one straggler after it":   {none.burst(ago(300*day), 2*time.Hour, 4000).burst(ago(3*day), 0, 1), triage.Incident, "99% of 4,001"},
		"4% of stragglers":         {none.burst(ago(300*day), 2*time.Hour, 960).burst(ago(200*day), 190*day, 40), triage.Incident, "96% of 1,000"},
		"20% of stragglers":        {none.burst(ago(300*day), 2*time.Hour, 800).burst(ago(290*day), 280*day, 200), triage.Mixed, "80% of 1,000 in one episode of 2h"},
		"stragglers on both sides": {none.burst(ago(300*day), 140*day, 100).burst(ago(150*day), 2*time.Hour, 4000).burst(ago(140*day), 130*day, 900), triage.Mixed, "in one episode of 2h"},
		"two incidents":            {none.burst(ago(200*day), time.Hour, 100).burst(ago(20*day), time.Hour, 100), triage.Mixed, "50% of 200"},
		"three incidents":          {none.burst(ago(200*day), time.Hour, 100).burst(ago(99*day), time.Hour, 110).burst(ago(20*day), time.Hour, 100), triage.Mixed, "in 3 episodes"},
		"five incidents":           {none.burst(ago(200*day), time.Hour, 9).burst(ago(150*day), time.Hour, 9).burst(ago(99*day), time.Hour, 9).burst(ago(60*day), time.Hour, 9).burst(ago(20*day), time.Hour, 9), triage.Structural, "in 5 episodes"},
		"every night":              {daily, triage.Structural, "on 300 days in"},
		"all year, dense":          {none.burst(ago(330*day), 329*day, 20000), triage.Structural, "on 330 days"},
		"all year, until now":      {none.burst(ago(330*day), 330*day, 20000), triage.Structural, "still going on"},
		"once a month":             {none.burst(ago(330*day), 329*day, 12), triage.Structural, "on 12 days"},
		"twenty hours":             {none.burst(ago(30*day), 20*time.Hour, 400), triage.Structural, "longer than an incident"},
		"as much again now":        {none.burst(ago(20*day), time.Hour, 300).burst(ago(time.Hour), time.Hour, 300), triage.Ongoing, "300 in an episode of 1h"},
		"half as much again now":   {none.burst(ago(20*day), time.Hour, 600).burst(ago(time.Hour), time.Hour, 300), triage.Ongoing, "has not ended, and 600 besides"},
		"a few stragglers now":     {none.burst(ago(20*day), time.Hour, 30).burst(ago(time.Hour), time.Hour, 4), triage.Mixed, "and 4 besides"},
		"an outage, and again now": {none.burst(ago(100*day), time.Hour, 50).burst(ago(time.Hour), time.Hour, 100), triage.Ongoing, "has not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, order := range []string{"in order", "backwards", "shuffled", "merged"} {
				at := append(moments(nil), c.at...)
				rng := rand.New(rand.NewPCG(1, 2))
				switch order {
				case "backwards":
					for i, j := 0, len(at)-1; i < j; i, j = i+1, j-1 {
						at[i], at[j] = at[j], at[i]
					}
				case "shuffled", "merged":
					rng.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
				}
				var parts [3]triage.Timeline
				for i, m := range at {
					part := 0
					if order == "merged" {
						part = i % len(parts)
					}
					parts[part].Add(m, 1)
				}
				l := parts[0]
				l.Merge(parts[1])
				l.Merge(parts[2])
				if l.Count() != int64(len(at)) {
					t.Fatalf("%s: %d moments, want %d", order, l.Count(), len(at))
				}
				j := triage.Thresholds{}.Judge(l, l.Count(), now)
				if j.Verdict != c.want || !strings.Contains(j.Reason, c.says) {
					// What is dense all year shows in how many days, never in how the
					// timeline was made smaller.
					t.Errorf("%s: %s: %s; want %s: %s", order, j.Verdict, j.Reason, c.want, c.says)
				}
			}
		})
	}
}

func TestTimelineIsBoundedAndSurvivesStorage(t *testing.T) {
	t.Parallel()
	var l triage.Timeline
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		l.Add(ago(time.Duration(rng.Int64N(int64(330*day)))), 1)
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 512*48 {
		t.Errorf("%d bytes", len(text))
	}
	var back triage.Timeline
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Count() != 100_000 {
		t.Errorf("%d moments", back.Count())
	}
	first, last, _ := l.Bounds()
	if f, b, ok := back.Bounds(); !ok || f != first || b != last {
		t.Errorf("%v to %v, want %v to %v", f, b, first, last)
	}
}

func entry(text string, at time.Time) triage.Entry {
	return triage.Entry{Class: "validation", Version: "1.0", Text: text, Consumer: "billing", Topic: "orders", FirstAttemptAt: at, FailedAt: at.Add(time.Minute)}
}

func TestAggregatesAreMergedAndStored(t *testing.T) {
	t.Parallel()
	e := entry("order 5 failed", ago(day))
	s := signature.Of(e.Text)
	whole, a, b := triage.NewAggregate(e, s), triage.NewAggregate(e, s), triage.NewAggregate(e, s)
	for i := range 100 {
		e := entry(fmt.Sprintf("order %d failed", i), ago(time.Duration(i*i%97)*time.Hour))
		e.ID, e.Aggregate, e.Code = fmt.Sprint("id", i), fmt.Sprint("order-", i%40), fmt.Sprint("E", i%3)
		whole.Add(e)
		if i%2 == 0 {
			a.Add(e)
		} else {
			b.Add(e)
		}
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var back triage.Aggregate
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	a.Merge(&back)
	// Which names are beyond the first sixteen depends on the order.
	total := func(n triage.Names) (sum int64) {
		for _, nc := range n.List() {
			sum += nc.Count
		}
		return sum
	}
	if n := len(a.Aggregates.List()); total(a.Aggregates) != 100 || n != 17 || a.Aggregates.List()[16].Name != triage.Other {
		t.Errorf("%d aggregates of %d messages", n, total(a.Aggregates))
	}
	whole.Aggregates, a.Aggregates = triage.Names{}, triage.Names{}
	got, _ := json.Marshal(a)
	want, _ := json.Marshal(whole)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-whole +merged):\n%s", diff)
	}
	if a.ID() != triage.GroupID(a.Key()) || !strings.HasPrefix(a.ID(), "g") || len(a.ID()) != 13 {
		t.Errorf("id %q", a.ID())
	}
}

// A defect over weekly deployments makes a group of each version. Every one
// looks like an incident; together they do not.
func TestVerdictIsDrawnAcrossVersions(t *testing.T) {
	t.Parallel()
	var groups []*triage.Aggregate
	for week := range 48 {
		e := entry("unknown field", time.Time{})
		e.Version = fmt.Sprintf("1.%d.0", week)
		a := triage.NewAggregate(e, signature.Of(e.Text))
		for i := range 20 {
			e.FirstAttemptAt = ago(time.Duration(48-week)*7*day - time.Duration(i)*time.Minute)
			a.Add(e)
		}
		groups = append(groups, a)
	}
	r := triage.NewReport(groups, triage.Options{Now: now})
	if r.Messages != 48*20 || len(r.Groups) != 48 {
		t.Fatalf("%d messages, %d groups", r.Messages, len(r.Groups))
	}
	for _, g := range r.Groups {
		if g.Verdict != triage.Structural || g.Count != 20 || g.SpanHours >= 1 || len(g.Episodes) != 48 {
			t.Errorf("%s: %s, %d messages in %v hours, %d episodes", g.ConsumerVersion, g.Verdict, g.Count, g.SpanHours, len(g.Episodes))
		}
	}
}

func TestRecurringGroupsComeFirst(t *testing.T) {
	t.Parallel()
	make1 := func(text string, n int) *triage.Aggregate {
		a := triage.NewAggregate(entry(text, now), signature.Of(text))
		for i := range n {
			a.Add(entry(text, ago(30*day+time.Duration(i)*time.Minute)))
		}
		return a
	}
	small, large, back := make1("a", 10), make1("b", 100), make1("c", 1)
	r := triage.NewReport([]*triage.Aggregate{small, large, back}, triage.Options{Now: now, Standing: func(a *triage.Aggregate) triage.Standing {
		if a == back {
			return triage.Standing{State: triage.Recurring, Previous: &triage.Disposition{Reason: "fixed_in_code", Version: "1.4.0", Author: "anna", At: ago(60 * day)}}
		}
		return triage.Standing{}
	}})
	var order []string
	for _, g := range r.Groups {
		order = append(order, g.Signature)
	}
	if diff := cmp.Diff([]string{"c", "b", "a"}, order); diff != "" {
		t.Error(diff)
	}
	if g := r.Groups[0]; g.PreviousDisposition == nil || !strings.Contains(g.Suggestion, "fixed_in_code in 1.4.0 on 2026-10-02") {
		t.Errorf("%q", g.Suggestion)
	}
}

// The unknown is never guessed: without times, nothing says that it was an
// incident.
// Clocks can be wrong by centuries, which a Duration cannot hold.
func TestMomentsCenturiesApart(t *testing.T) {
	t.Parallel()
	var l triage.Timeline
	for year := 500; year <= 6500; year += 1000 {
		l.Add(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	}
	j := triage.Thresholds{}.Judge(l, 7, now)
	if len(j.Episodes) != 1 || j.Episodes[0].Count != 7 || j.Verdict != triage.Structural {
		t.Errorf("%+v", j)
	}
}

func TestGroupsWithoutTimes(t *testing.T) {
	t.Parallel()
	a := triage.NewAggregate(entry("x", time.Time{}), signature.Of("x"))
	for range 10 {
		a.Add(triage.Entry{Class: "validation", Version: "1.0", Text: "x"})
	}
	r := triage.NewReport([]*triage.Aggregate{a}, triage.Options{Now: now})
	g := r.Groups[0]
	if r.Window != nil || g.FirstSeen != nil || g.Verdict != triage.Structural || !strings.Contains(g.VerdictReason, "no times") {
		t.Errorf("%+v", g)
	}
}

// What has no time may have failed whenever, and is counted as if it had not
// failed with the others.
func TestGroupsOfWhichFewHaveTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		timed, untimed int
		want           triage.Verdict
		says           string
	}{
		{1000, 10, triage.Incident, "99% of 1,010 in one episode"},
		{1000, 10, triage.Incident, "10 without a time"},
		{700, 300, triage.Mixed, "70% of 1,000 in one episode"},
		{700, 300, triage.Mixed, "300 besides; 300 without a time"},
		{1, 1000, triage.Structural, "the times of 1,000 of 1,001 are not known"},
		{2, 2, triage.Isolated, "2 without a time"},
	} {
		var l triage.Timeline
		for range c.timed {
			l.Add(ago(9*day), 1)
		}
		j := triage.Thresholds{}.Judge(l, int64(c.timed+c.untimed), now)
		if j.Verdict != c.want || !strings.Contains(j.Reason, c.says) {
			t.Errorf("%d and %d: %s: %s; want %s: %s", c.timed, c.untimed, j.Verdict, j.Reason, c.want, c.says)
		}
	}
}

// One clock that is years ahead does not end what goes on (O41).
func TestPresentIsNotInTheFarFuture(t *testing.T) {
	t.Parallel()
	a := triage.NewAggregate(entry("x", now), signature.Of("x"))
	for range 500 {
		a.Add(entry("x", time.Now().Add(-2*time.Minute)))
	}
	a.Add(entry("x", time.Now().Add(1000*day)))
	if g := triage.NewReport([]*triage.Aggregate{a}, triage.Options{}).Groups[0]; g.Verdict != triage.Ongoing {
		t.Errorf("%s: %s", g.Verdict, g.VerdictReason)
	}
	behind := triage.NewAggregate(entry("x", now), signature.Of("x"))
	latest := time.Now().Add(3 * time.Hour).UTC()
	behind.Add(triage.Entry{FailedAt: latest})
	if got := triage.Present([]*triage.Aggregate{behind}); !got.Equal(latest) {
		t.Errorf("the present is %v, want %v", got, latest)
	}
}

func TestThresholdsReportEveryProblem(t *testing.T) {
	t.Parallel()
	if err := (triage.Thresholds{}).Validate(); err != nil {
		t.Error(err)
	}
	err := triage.Thresholds{Handful: -1, Share: 2, Short: -1, ManyDays: 1, ManyEpisodes: 1, Silence: 1, Density: 0.5, MixedShare: 3}.Validate()
	for _, field := range []string{"Handful", "Share", "MixedShare", "Short", "ManyDays", "ManyEpisodes", "Silence", "Density"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// What is stored may come back damaged.
func FuzzAggregateFromJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"timeline":[[1,2,3],[5,4,-1]],"count":-1}`, `{"timeline":[[-9223372036854775808,9223372036854775807,9223372036854775807],[0,0,1]]}`, `{"topics":[{"name":"(other)","count":5}]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var a triage.Aggregate
		if json.Unmarshal([]byte(s), &a) != nil {
			return
		}
		r := triage.NewReport([]*triage.Aggregate{&a}, triage.Options{Now: now})
		if len(r.Groups) != 1 || r.Groups[0].Verdict == "" || r.Groups[0].Suggestion == "" {
			t.Fatalf("%+v", r)
		}
	})
}

// A verdict's reason is true to the number: 57 of 100 are 57%, although
// 0.57 * 100 is less in floating point.
func TestShareIsTrueToTheNumbers(t *testing.T) {
	t.Parallel()
	for part := int64(1); part < 100; part++ {
		var l triage.Timeline
		l.Add(ago(10*day), part)
		l.Add(ago(5*day), 100-part)
		larger := max(part, 100-part)
		want := fmt.Sprintf("%d%% of 100", larger)
		if j := (triage.Thresholds{}).Judge(l, 100, now); larger > 50 && !strings.Contains(j.Reason, want) {
			t.Errorf("%d and %d: %s: %s, want %s", part, 100-part, j.Verdict, j.Reason, want)
		}
	}
}
