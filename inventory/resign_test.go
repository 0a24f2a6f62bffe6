package inventory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

// firstWord and lastWord are rules of signatures that split and merge.
func firstWord(text string) string { return strings.Fields(text)[0] }
func lastWord(text string) string  { return text[strings.LastIndexByte(text, ' ')+1:] }

// seen is what an operator sees of each group: its signature, how many are open
// of how many, its state and the decision before.
func seen(t *testing.T, s *inventory.Store) (lines []string) {
	t.Helper()
	list := groups(t, s)
	standings, err := s.Standings(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		before := ""
		if p := standings[g.ID].Previous; p != nil {
			before = " " + string(p.Reason)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %d of %d %s%s", g.Version, g.Signature, g.Open, g.Total, standings[g.ID].State, before))
		if g.Aggregate.Count != g.Open {
			t.Errorf("%s: %d are open, its aggregate has %d", g.Signature, g.Open, g.Aggregate.Count)
		}
	}
	slices.Sort(lines)
	return lines
}

func sees(t *testing.T, s *inventory.Store, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, seen(t, s)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func named(t *testing.T, s *inventory.Store, signature string) inventory.Group {
	t.Helper()
	for _, g := range groups(t, s) {
		if g.Signature == signature {
			return g
		}
	}
	t.Fatalf("there is no group %q among %v", signature, seen(t, s))
	return inventory.Group{}
}

// O45: when the rules change, what was collected before is signed anew, and
// what was decided about a group holds for those that it is split into or
// merged with.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		inventory.SetRules(s, "s0", firstWord)
		at := ago(48 * time.Hour)
		add(t, s, letters("a", "order invalid", 3, at)...)
		add(t, s, letters("b", "order missing", 2, at)...)
		add(t, s, letters("c", "customer missing", 4, at)...)
		orders := named(t, s, "order")
		closeGroup(t, s, inventory.Decision{Group: orders.ID, Reason: inventory.ReasonAcceptedLoss})
		if _, err := s.Mute(t.Context(), inventory.Decision{Group: named(t, s, "customer").ID, Author: "ana", Until: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		sees(t, s, "by the first rules", "1.8.2 customer: 4 of 4 muted", "1.8.2 order: 0 of 5 closed accepted_loss")

		next := open(t, url)
		inventory.SetRules(next, "s2", lastWord)
		if n, err := next.Stale(t.Context()); n != 2 || err != nil {
			t.Errorf("%d groups are stale, %v", n, err)
		}
		plan, err := next.Resign(t.Context(), true)
		if err != nil || len(plan.Moves) != 3 {
			t.Errorf("the plan is %+v, %v", plan, err)
		}
		sees(t, s, "after a plan", "1.8.2 customer: 4 of 4 muted", "1.8.2 order: 0 of 5 closed accepted_loss")
		done, err := next.Resign(t.Context(), false)
		if diff := cmp.Diff(plan, done); err != nil || diff != "" {
			t.Errorf("%v (-plan +done):\n%s", err, diff)
		}
		// order was split, and its part became one with customer.
		sees(t, next, "by the next rules", "1.8.2 invalid: 0 of 3 closed accepted_loss", "1.8.2 missing: 4 of 6 muted accepted_loss")
		if again, err := next.Resign(t.Context(), false); err != nil || len(again.Moves) != 0 {
			t.Errorf("again: %+v, %v", again, err)
		}

		// What failed before the decision and comes late belongs to it.
		add(t, next, letter("late", "order invalid", at.Add(time.Minute)))
		add(t, next, letter("back", "order invalid", ago(-time.Minute)))
		sees(t, next, "late and back", "1.8.2 invalid: 1 of 5 recurring accepted_loss", "1.8.2 missing: 4 of 6 muted accepted_loss")
		decisions, err := next.Dispositions(t.Context(), inventory.DispositionFilter{Group: named(t, next, "invalid").ID})
		if err != nil || len(decisions) != 1 || decisions[0].Signature != "order" {
			t.Errorf("decisions %+v, %v", decisions, err)
		}

		// The id that somebody has noted down still says which group is meant.
		if _, err := next.Group(t.Context(), orders.ID); !errors.Is(err, inventory.ErrAmbiguous) || !strings.Contains(err.Error(), named(t, next, "invalid").ID) {
			t.Errorf("the group that was split: %v", err)
		}

		// Over two steps, and taking back opens what was closed, wherever it is.
		last := open(t, url)
		inventory.SetRules(last, "s3", func(text string) string { return text })
		if _, err := last.Resign(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		sees(t, last, "by the last rules", "1.8.2 customer missing: 4 of 4 muted accepted_loss", "1.8.2 order invalid: 1 of 5 recurring accepted_loss", "1.8.2 order missing: 0 of 2 closed accepted_loss")
		if d, err := last.Reopen(t.Context(), inventory.Decision{Group: named(t, last, "order missing").ID, Author: "ana"}); err != nil || d.Affected != 6 {
			t.Errorf("reopened %+v, %v", d, err)
		}
		sees(t, last, "after reopening", "1.8.2 customer missing: 4 of 4 muted", "1.8.2 order invalid: 5 of 5 fresh", "1.8.2 order missing: 2 of 2 muted")
	})
}

// O43: a person can overrule signatures, also for what is collected later, and
// take it back.
func TestSignaturesAreOverruled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "no customer Anna", 3, ago(time.Hour))...)
		add(t, s, letters("b", "no customer Bob", 2, ago(time.Hour))...)
		anna, bob := named(t, s, "no customer Anna"), named(t, s, "no customer Bob")
		closeGroup(t, s, inventory.Decision{Group: bob.ID, Reason: inventory.ReasonEntityDeleted})
		ana := inventory.Decision{Group: bob.ID, Author: "ana", Note: "one cause"}

		dry := ana
		dry.DryRun = true
		if plan, err := s.MergeGroups(t.Context(), dry, anna.ID); err != nil || len(plan.Moves) != 1 || plan.Moves[0].DeadLetters != 2 {
			t.Errorf("the plan is %+v, %v", plan, err)
		}
		if _, err := s.MergeGroups(t.Context(), ana, anna.ID); err != nil {
			t.Fatal(err)
		}
		later := letter("late", "no customer Bob", ago(-time.Minute))
		later.DeadLetter.Consumer.Version = "1.9.0"
		add(t, s, later)
		sees(t, s, "merged", "1.8.2 no customer Anna: 3 of 5 fresh entity_deleted", "1.9.0 no customer Anna: 1 of 1 recurring entity_deleted")
		if g, err := s.Group(t.Context(), bob.ID); err != nil || g.ID != anna.ID {
			t.Errorf("the merged group is %+v, %v", g, err)
		}

		// By a field: the beginning of the signature stays in sight.
		code := letter("code", "no customer Anna", ago(time.Hour))
		code.DeadLetter.Failure.Code = "GONE"
		add(t, s, code)
		if _, err := s.SplitGroup(t.Context(), inventory.Decision{Group: anna.ID, Author: "ana"}, "code"); err != nil {
			t.Fatal(err)
		}
		add(t, s, letter("more", "no customer Bob", ago(time.Hour)))
		sees(t, s, "split",
			"1.8.2 no customer Anna [code GONE]: 1 of 1 fresh entity_deleted", "1.8.2 no customer Anna [code INVALID_SCHEMA]: 4 of 6 fresh entity_deleted",
			"1.9.0 no customer Anna [code INVALID_SCHEMA]: 1 of 1 recurring entity_deleted")

		if all, err := s.Overrides(t.Context()); err != nil || len(all) != 2 || all[0].Into == "" || all[1].Field != "code" || all[0].Note != "one cause" {
			t.Errorf("overruled: %+v, %v", all, err)
		}
		for range 2 { // the split, which the merge came into, and the merge
			if _, err := s.Restore(t.Context(), inventory.Decision{Group: groups(t, s)[0].ID, Author: "ana"}); err != nil && !errors.Is(err, inventory.ErrRefused) {
				t.Fatal(err)
			}
		}
		list := seen(t, s)
		if len(list) != 3 || !strings.HasPrefix(list[0], "1.8.2 no customer Anna: ") || !strings.HasPrefix(list[1], "1.8.2 no customer Bob: ") {
			t.Errorf("restored: %q", list)
		}
		if n, err := s.Stale(t.Context()); n != 0 || err != nil {
			t.Errorf("%d groups are stale, %v", n, err)
		}
		lines, err := s.Audit(t.Context(), "", 0)
		var actions []string
		for _, l := range lines {
			actions = append(actions, l.Action)
		}
		slices.Reverse(actions)
		if diff := cmp.Diff([]string{"close", "merge", "split", "restore"}, actions); err != nil || diff != "" {
			t.Errorf("audit: %v (-want +got):\n%s", err, diff)
		}
		total := int64(0)
		for _, g := range groups(t, s) {
			total += g.Total
		}
		if total != 8 {
			t.Errorf("%d dead letters are left of 8", total)
		}
	})
}

func TestOverrulingThatIsRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		other := letter("p", "boom", monday)
		other.DeadLetter.Failure.Class = "panic"
		add(t, s, letter("a", "no customer Anna", monday), letter("b", "no customer Bob", monday), other)
		anna, bob, boom := named(t, s, "no customer Anna"), named(t, s, "no customer Bob"), named(t, s, "boom")
		ana := inventory.Decision{Group: anna.ID, Author: "ana"}
		for what, do := range map[string]func() (inventory.Resigned, error){
			"into itself":   func() (inventory.Resigned, error) { return s.MergeGroups(t.Context(), ana, anna.ID) },
			"another class": func() (inventory.Resigned, error) { return s.MergeGroups(t.Context(), ana, boom.ID) },
			"no author": func() (inventory.Resigned, error) {
				return s.MergeGroups(t.Context(), inventory.Decision{Group: anna.ID}, bob.ID)
			},
			"no field":      func() (inventory.Resigned, error) { return s.SplitGroup(t.Context(), ana, "weather") },
			"nothing there": func() (inventory.Resigned, error) { return s.Restore(t.Context(), ana) },
		} {
			if _, err := do(); !errors.Is(err, inventory.ErrRefused) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := s.SplitGroup(t.Context(), ana, "topic"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SplitGroup(t.Context(), inventory.Decision{Group: named(t, s, "no customer Anna [topic orders]").ID, Author: "ana"}, "code"); !errors.Is(err, inventory.ErrRefused) {
			t.Errorf("twice: %v", err)
		}
		if st, err := s.Triage(t.Context(), inventory.TriageOptions{}); err != nil || len(st.Report.Groups) != 3 || st.Report.Groups[0].State != triage.Fresh {
			t.Errorf("%+v, %v", st.Report.Groups, err)
		}
	})
}
