package inventory_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

// ago is a time before now: decisions are made now, and what failed later than
// that has not happened.
func ago(d time.Duration) time.Time { return time.Now().Add(-d).UTC() }

// version is a dead letter of a version of the consumer.
func version(id, v string, failed time.Time) inventory.Item {
	it := letter(id, "boom", failed)
	it.DeadLetter.Consumer.Version = v
	return it
}

func closeGroup(t *testing.T, s *inventory.Store, d inventory.Decision) inventory.Disposition {
	t.Helper()
	d.Author = "ana"
	done, err := s.CloseGroup(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// groupOf is the group of a version.
func groupOf(t *testing.T, s *inventory.Store, v string) inventory.Group {
	t.Helper()
	for _, g := range groups(t, s) {
		if g.Version == v {
			return g
		}
	}
	t.Fatalf("no group of version %s", v)
	panic("unreachable")
}

func standing(t *testing.T, s *inventory.Store, v string) inventory.Standing {
	t.Helper()
	g := groupOf(t, s, v)
	all, err := s.Standings(t.Context(), groups(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return all[g.ID]
}

func TestClosingTakesWhatIsOpen(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "boom", 3, ago(time.Hour))...)
		add(t, s, letter("other", "another cause", ago(time.Hour)))
		g := groupOf(t, s, "1.8.2")
		for _, each := range groups(t, s) {
			if each.Signature == "boom" {
				g = each
			}
		}
		plan, err := s.CloseGroup(t.Context(), inventory.Decision{Group: g.ID, Author: "ana", Reason: inventory.ReasonTestData, DryRun: true})
		if err != nil || plan.Affected != 3 {
			t.Errorf("plan %+v, %v", plan, err)
		}
		if again, _ := s.Group(t.Context(), g.ID); again.Open != 3 {
			t.Error("a dry run closed it")
		}
		done := closeGroup(t, s, inventory.Decision{Group: g.ID[:5], Reason: inventory.ReasonFixedInCode, FixedIn: "1.9.0", Note: "PR 7"})
		if done.Affected != 3 || done.Group != g.ID || done.Class != "validation" || done.Consumers != "billing" || done.Version != "1.8.2" || done.Author != "ana" ||
			done.Reason != "fixed_in_code" || done.FixedIn != "1.9.0" || done.Note != "PR 7" || done.Signature != "boom" || done.FirstSeen.IsZero() || done.At.IsZero() {
			t.Errorf("%+v", done)
		}
		after, err := s.Group(t.Context(), g.ID)
		if err != nil || after.Open != 0 || after.Total != 3 || after.Aggregate.Count != 0 {
			t.Errorf("%+v, %v", after, err)
		}
		for state, n := range map[inventory.MessageState]int{inventory.MessageClosed: 3, inventory.MessageOpen: 1} {
			if all, err := s.DeadLetters(t.Context(), inventory.Filter{State: state}); err != nil || len(all) != n {
				t.Errorf("%d are %s, %v", len(all), state, err)
			}
		}
		kept, err := s.Dispositions(t.Context(), inventory.DispositionFilter{Group: g.ID})
		if diff := cmp.Diff([]inventory.Disposition{done}, kept); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		// O14.
		audit, err := s.Audit(t.Context(), g.ID, 0)
		if err != nil || len(audit) != 1 || audit[0].Author != "ana" || audit[0].Action != "close" || audit[0].Total != 3 || audit[0].Filter != "group="+g.ID {
			t.Errorf("audit %+v, %v", audit, err)
		}
		for _, statement := range []string{"UPDATE decisions SET author = 'eve'", "DELETE FROM decisions"} {
			if _, err := raw(t, url).Exec(statement); err == nil || !strings.Contains(err.Error(), "append only") {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
}

func TestDecisionsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "i.db"))
	add(t, s, letter("a", "boom", ago(time.Hour)))
	g := groups(t, s)[0].ID
	for what, d := range map[string]inventory.Decision{
		"no reason":          {Group: g, Author: "ana"},
		"other":              {Group: g, Author: "ana", Reason: "other"},
		"a reason of ours":   {Group: g, Author: "ana", Reason: inventory.ReasonReplayedOK},
		"fixed, but when":    {Group: g, Author: "ana", Reason: inventory.ReasonFixedInCode},
		"fixed in no place":  {Group: g, Author: "ana", Reason: inventory.ReasonFixedInCode, FixedIn: " "},
		"a version too many": {Group: g, Author: "ana", Reason: inventory.ReasonTestData, FixedIn: "1.0.0"},
		"nobody":             {Group: g, Reason: inventory.ReasonTestData},
	} {
		_, err := s.CloseGroup(t.Context(), d)
		if !errors.Is(err, inventory.ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(what, "reason") && !strings.Contains(err.Error(), "entity_deleted, window_expired, producer_retired, already_processed, fixed_in_code, handled_by_hand, accepted_loss, test_data") {
			t.Errorf("%s: the list is not shown: %v", what, err)
		}
	}
	if _, err := s.CloseGroup(t.Context(), inventory.Decision{Group: "gnone", Author: "ana", Reason: inventory.ReasonTestData}); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Reopen(t.Context(), inventory.Decision{Group: g, Author: "ana"}); !errors.Is(err, inventory.ErrRefused) {
		t.Errorf("reopening what is open: %v", err)
	}
	if _, err := s.Mute(t.Context(), inventory.Decision{Group: g, Author: "ana", Until: ago(time.Minute)}); !errors.Is(err, inventory.ErrRefused) {
		t.Errorf("muting until the past: %v", err)
	}
	closeGroup(t, s, inventory.Decision{Group: g, Reason: inventory.ReasonTestData})
	if _, err := s.CloseGroup(t.Context(), inventory.Decision{Group: g, Author: "ana", Reason: inventory.ReasonTestData}); !errors.Is(err, inventory.ErrRefused) {
		t.Errorf("closing what is closed: %v", err)
	}
}

// What failed before a decision was decided about, whenever it is collected.
// What failed after it has come back.
func TestFailureTimeDecidesAndNotCollectionTime(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letter("a", "boom", ago(2*time.Hour)))
		g := groups(t, s)[0].ID
		if st := standing(t, s, "1.8.2"); st.State != triage.Fresh || st.Previous != nil {
			t.Errorf("before: %+v", st)
		}
		done := closeGroup(t, s, inventory.Decision{Group: g, Reason: inventory.ReasonAcceptedLoss})
		add(t, s, letter("late", "boom", ago(time.Hour)))
		if got := groups(t, s)[0]; got.Open != 0 || got.Total != 2 {
			t.Errorf("what failed before is open: %+v", got)
		}
		if st := standing(t, s, "1.8.2"); st.State != triage.Closed || st.Previous == nil {
			t.Errorf("closed: %+v", st)
		}
		back := letter("back", "boom", done.At.Add(time.Nanosecond))
		add(t, s, back, letter("late too", "boom", ago(3*time.Hour)))
		got := groups(t, s)[0]
		if got.Open != 1 || got.Total != 4 || got.Aggregate.Count != 1 || got.Aggregate.Sample.ID != "back" {
			t.Errorf("it is back: %+v", got)
		}
		st := standing(t, s, "1.8.2")
		if st.State != triage.Recurring || st.Previous == nil || st.Previous.Seq != done.Seq {
			t.Errorf("back: %+v", st)
		}
	})
}

// RabbitMQ keeps the time of the first death only: a message that was sent back
// after the decision, and died again, has failed since, and is open.
func TestAnUnknownTimeOfFailureIsNotThatOfTheFirstAttempt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		again := letter("again", "boom", ago(2*time.Hour))
		again.DeadLetter.Failure.FirstAttemptAt, again.DeadLetter.Failure.FailedAt = ago(2*time.Hour), time.Time{}
		add(t, s, letter("a", "boom", ago(2*time.Hour)))
		closeGroup(t, s, inventory.Decision{Group: groups(t, s)[0].ID, Reason: inventory.ReasonHandledByHand})
		add(t, s, again)
		if got := groups(t, s)[0]; got.Open != 1 {
			t.Errorf("%d are open, want 1", got.Open)
		}
	})
}

func TestReopenTakesBackTheDecision(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "boom", 3, ago(2*time.Hour))...)
		before := groups(t, s)[0]
		closed := closeGroup(t, s, inventory.Decision{Group: before.ID, Reason: inventory.ReasonTestData})
		add(t, s, letter("late", "boom", ago(time.Hour)))
		done, err := s.Reopen(t.Context(), inventory.Decision{Group: before.ID, Author: "bob", Note: "wrong group"})
		if err != nil || done.Affected != 4 || done.Of != closed.Seq || done.Author != "bob" {
			t.Fatalf("%+v, %v", done, err)
		}
		after := groups(t, s)[0]
		if after.Open != 4 || after.Aggregate.Count != 4 || !after.Aggregate.FirstSeen.Equal(before.Aggregate.FirstSeen) {
			t.Errorf("%+v", after)
		}
		if st := standing(t, s, "1.8.2"); st.State != triage.Fresh || st.Previous != nil {
			t.Errorf("%+v", st)
		}
		// And again: each closing is its own.
		closeGroup(t, s, inventory.Decision{Group: before.ID, Reason: inventory.ReasonHandledByHand})
		if got := groups(t, s)[0]; got.Open != 0 || got.Total != 4 {
			t.Errorf("%+v", got)
		}
		all, err := s.Dispositions(t.Context(), inventory.DispositionFilter{})
		if err != nil || len(all) != 3 || all[0].Reason != inventory.ReasonHandledByHand || all[1].Action != inventory.ActionReopen {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// O40: after a fix, versions below it are residue and all others are back.
func TestFixedInAVersion(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, version("a", "10.18.6", ago(2*time.Hour)), version("old-sha", "1f3a9bc", ago(3*time.Hour)))
		done := closeGroup(t, s, inventory.Decision{Group: groupOf(t, s, "10.18.6").ID, Reason: inventory.ReasonFixedInCode, FixedIn: "10.24.0"})
		after := func(i int) time.Time { return done.At.Add(time.Duration(i) * time.Microsecond) }
		var items []inventory.Item
		for i, v := range []string{"10.18.6", "10.18.7", "v10.9.0", "billing@10.23.9", "10.24.0-rc.1", "10.24.0", "10.24.0+b7", "v10.100.0", "unknown", "999.9.9", "10.24.1", "1f3a9bc", "2e4bacd"} {
			items = append(items, version(fmt.Sprint("b", i), v, after(i+1)))
		}
		add(t, s, items...)
		for v, want := range map[string]triage.State{
			"10.18.6": triage.Residue, "10.18.7": triage.Residue, "v10.9.0": triage.Residue, "billing@10.23.9": triage.Residue, "10.24.0-rc.1": triage.Residue,
			"10.24.0": triage.Recurring, "10.24.0+b7": triage.Recurring, "v10.100.0": triage.Recurring, "unknown": triage.Recurring,
			// O41: that a message named 999.9.9 hides nothing: 10.24.1 is back.
			"999.9.9": triage.Recurring, "10.24.1": triage.Recurring,
			// No versions but revisions: which was there before the decision?
			"1f3a9bc": triage.Residue, "2e4bacd": triage.Recurring,
		} {
			st := standing(t, s, v)
			if st.State != want || st.Previous == nil || st.Why == "" {
				t.Errorf("%s: %s (%s), want %s", v, st.State, st.Why, want)
			}
		}
		if why := standing(t, s, "10.18.7").Why; why != "version 10.18.7 is below 10.24.0, in which it was fixed" {
			t.Errorf("%s", why)
		}
	})
}

// A version that is no number is compared with that of the fix by which was
// seen first.
func TestVersionsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "i.db"))
	other := version("x", "fedcba9", ago(time.Hour))
	other.DeadLetter.Failure.Message = "another cause"
	add(t, s, version("a", "aaaaaaa", ago(3*time.Hour)), other)
	done := closeGroup(t, s, inventory.Decision{Group: groupOf(t, s, "aaaaaaa").ID, Reason: inventory.ReasonFixedInCode, FixedIn: "fedcba9"})
	add(t, s, version("b", "aaaaaaa", done.At.Add(1)), version("c", "0123456", done.At.Add(1)))
	if st := standing(t, s, "aaaaaaa"); st.State != triage.Residue || !strings.Contains(st.Why, "first seen") {
		t.Errorf("%+v", st)
	}
	if st := standing(t, s, "0123456"); st.State != triage.Recurring {
		t.Errorf("%+v", st)
	}
}

// O40, as a table.
func TestCompareVersions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"1.2.3", "1.2.3", 0}, {"v1.2.3", "1.2.3", 0}, {"app@1.2.3", "v1.2.3", 0}, {"1.2", "1.2.0", 0}, {"1.2.3+a", "1.2.3+b", 0},
		{"10.18.7", "10.24.0", -1}, {"1.10.0", "1.9.0", 1}, {"1.0.0-rc.1", "1.0.0", -1}, {"1.0.0-rc.2", "1.0.0-rc.10", -1},
		{"1.0.0-alpha", "1.0.0-alpha.1", -1}, {"1.0.0-1", "1.0.0-a", -1}, {"2", "1.9", 1}, {"1.2.3-0.20260101", "1.2.3", -1},
		{"1.2.99999999999999999999", "1.2.100000000000000000000", -1}, {"01.2.3", "1.2.3", 0},
	} {
		for _, flip := range []bool{false, true} {
			a, b, want := row.a, row.b, row.want
			if flip {
				a, b, want = b, a, -want
			}
			if got, ok := inventory.CompareVersions(a, b); !ok || got != want {
				t.Errorf("%s, %s: %d, %v, want %d", a, b, got, ok, want)
			}
		}
	}
	for _, v := range []string{"", "unknown", "(devel)", "1f3a9bc", "1.2.3.4", "1.x", "20261201", "1..2", "1.2.3-", "1.2.3-a..b", "-1", "1.2.3-ä"} {
		if _, ok := inventory.CompareVersions(v, "1.0.0"); ok {
			t.Errorf("%q passes for a version", v)
		}
	}
}

func FuzzCompareVersions(f *testing.F) {
	for _, v := range []string{"1.2.3", "v1.2.3-rc.1+x", "a@1", "", "-", "1.2.3-0.0"} {
		f.Add(v, "1.2.3")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, ok := inventory.CompareVersions(a, b)
		y, okBack := inventory.CompareVersions(b, a)
		if ok != okBack || x != -y {
			t.Errorf("%q and %q: %d, %v and %d, %v", a, b, x, ok, y, okBack)
		}
	})
}

// O13: muting has an end, and is not closing.
func TestMuteEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(dir, "i.db"))
		add(t, s, letter("a", "boom", ago(time.Hour)))
		g := groups(t, s)[0]
		mute := func(until time.Time) {
			t.Helper()
			if _, err := s.Mute(t.Context(), inventory.Decision{Group: g.ID, Author: "ana", Until: until}); err != nil {
				t.Fatal(err)
			}
		}
		mute(time.Now().Add(time.Hour))
		time.Sleep(59 * time.Minute)
		if st := standing(t, s, "1.8.2"); st.State != triage.Muted || !strings.Contains(st.Why, "by ana") {
			t.Errorf("%+v", st)
		}
		if g := groups(t, s)[0]; g.Open != 1 {
			t.Error("muting has closed it")
		}
		time.Sleep(time.Minute)
		if st := standing(t, s, "1.8.2"); st.State != triage.Fresh {
			t.Errorf("after its end: %+v", st)
		}
		mute(time.Now().Add(time.Hour))
		mute(time.Time{})
		if st := standing(t, s, "1.8.2"); st.State != triage.Fresh {
			t.Errorf("unmuted: %+v", st)
		}
	})
}

// O13: a number of dead letters is an end as well, and a rate for as long as it
// lasts.
func TestMuteEndsWithWhatComes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "boom", 3, ago(3*time.Hour))...)
		g := groups(t, s)[0]
		mute := func(d inventory.Decision) inventory.Disposition {
			t.Helper()
			d.Group, d.Author = g.ID, "ana"
			done, err := s.Mute(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		is := func(what string, want triage.State) {
			t.Helper()
			if st := standing(t, s, "1.8.2"); st.State != want {
				t.Errorf("%s: %+v, want %s", what, st, want)
			}
		}
		if done := mute(inventory.Decision{UntilMore: 2}); done.UntilTotal != 5 || !strings.Contains(done.String(), "muted until there were 5") {
			t.Errorf("%+v", done)
		}
		add(t, s, letter("b1", "boom", ago(3*time.Hour)))
		is("one more", triage.Muted)
		add(t, s, letter("b2", "boom", ago(3*time.Hour)))
		is("two more", triage.Fresh)

		mute(inventory.Decision{UntilRate: 2, Until: time.Now().Add(time.Hour)})
		is("none in an hour", triage.Muted)
		add(t, s, letters("c", "boom", 3, ago(time.Minute))...)
		is("three in an hour", triage.Fresh)
		mute(inventory.Decision{UntilRate: 3})
		is("no more than three", triage.Muted)
		mute(inventory.Decision{})
		is("unmuted", triage.Fresh)
		if _, err := s.Mute(t.Context(), inventory.Decision{Group: g.ID, Author: "ana", UntilMore: -1}); !errors.Is(err, inventory.ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

// O5 for decisions: each of several instances that close one group at once
// closes what the others have not.
func TestTwoCloseAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "boom", 20, ago(time.Hour))...)
		g := groups(t, s)[0].ID
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.CloseGroup(t.Context(), inventory.Decision{Group: g, Author: "ana", Reason: inventory.ReasonTestData})
				results <- err
			}()
		}
		errs := []error{<-results, <-results}
		if n := len(slices.DeleteFunc(errs, func(err error) bool { return err == nil })); n != 1 || !errors.Is(errs[0], inventory.ErrRefused) {
			t.Errorf("want one to be refused: %v", errs)
		}
	})
}

// O21: what is past its time is closed as expired, with a record, and purged.
func TestSweep(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		day := 24 * time.Hour
		add(t, s, letters("old", "boom", 3, ago(100*day))...)
		add(t, s, letter("new", "boom", ago(day)))
		closed := letter("closed", "another cause", ago(100*day))
		add(t, s, closed)
		for _, g := range groups(t, s) {
			if g.Signature == "another cause" {
				closeGroup(t, s, inventory.Decision{Group: g.ID, Reason: inventory.ReasonAcceptedLoss})
			}
		}
		keep := inventory.Retention{Open: inventory.Keep, Closed: inventory.Keep}
		if swept, err := s.Sweep(t.Context(), keep); err != nil || swept != (inventory.Swept{}) {
			t.Errorf("%+v, %v", swept, err)
		}
		for range 2 { // a plan changes nothing
			if swept, err := s.SweepPlan(t.Context(), inventory.Retention{}); err != nil || swept != (inventory.Swept{Expired: 3}) {
				t.Errorf("%+v, %v", swept, err)
			}
		}
		if swept, err := s.Sweep(t.Context(), inventory.Retention{}); err != nil || swept != (inventory.Swept{Expired: 3}) {
			t.Errorf("%+v, %v", swept, err)
		}
		for id, purged := range map[string]bool{"old1": true, "new": false, "closed": false} {
			e, err := s.DeadLetter(t.Context(), id)
			m := e.DeadLetter.FailedMessage
			if err != nil || e.PurgedAt.IsZero() == purged || (m.Payload == nil) != purged || (m.Headers == nil) != purged || (m.Key == nil) != purged || e.DeadLetter.Failure.Message == "" {
				t.Errorf("%s: %+v, %v", id, e, err)
			}
		}
		if swept, err := s.Sweep(t.Context(), inventory.Retention{Closed: time.Nanosecond}); err != nil || swept != (inventory.Swept{Purged: 1}) {
			t.Errorf("%+v, %v", swept, err)
		}
		g := groupOf(t, s, "1.8.2")
		for _, each := range groups(t, s) {
			if each.Signature == "boom" {
				g = each
			}
		}
		if g.Open != 1 || g.Total != 4 || g.Aggregate.Count != 1 || g.Aggregate.Sample.ID != "new" {
			t.Errorf("%+v", g)
		}
		all, err := s.Dispositions(t.Context(), inventory.DispositionFilter{Group: g.ID})
		if err != nil || len(all) != 1 || all[0].Reason != inventory.ReasonExpired || all[0].Affected != 3 || all[0].Author != "spillway" {
			t.Errorf("%+v, %v", all, err)
		}
		// That nobody decided is no decision that something comes back from.
		if st, err := s.Standings(t.Context(), groups(t, s)); err != nil || st[g.ID].State != triage.Fresh || st[g.ID].Previous != nil {
			t.Errorf("%+v, %v", st[g.ID], err)
		}
		// Swept rows are still known when they come again.
		if got := add(t, s, letters("old", "boom", 3, ago(100*day))...); got.New != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A decision about one version says nothing of what came back in another one
// before it: that stays what it was.
func TestDecidingAboutOneVersionLeavesTheOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, version("a", "1.8.0", ago(2*time.Hour)))
		fix := closeGroup(t, s, inventory.Decision{Group: groupOf(t, s, "1.8.0").ID, Reason: inventory.ReasonFixedInCode, FixedIn: "1.9.0"})
		back := fix.At.Add(time.Microsecond)
		add(t, s, version("b", "1.8.0", back), version("c", "1.9.1", back), version("d", "1.9.2", back))
		late := closeGroup(t, s, inventory.Decision{Group: groupOf(t, s, "1.9.2").ID, Reason: inventory.ReasonAcceptedLoss})
		for v, want := range map[string]triage.State{"1.8.0": triage.Residue, "1.9.1": triage.Recurring, "1.9.2": triage.Closed} {
			if st := standing(t, s, v); st.State != want {
				t.Errorf("%s: %s (%s), want %s", v, st.State, st.Why, want)
			}
		}
		if p := standing(t, s, "1.9.1").Previous; p == nil || p.Seq != fix.Seq {
			t.Errorf("before: %+v, want that of the fix", p)
		}
		// What fails after the later decision came back after that.
		add(t, s, version("e", "1.9.1", late.At.Add(time.Microsecond)))
		if st := standing(t, s, "1.9.1"); st.State != triage.Recurring || st.Previous.Seq != late.Seq {
			t.Errorf("%+v, want recurring after %d", st, late.Seq)
		}
	})
}
