package triage

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Verdict is what the times of a group say about its cause.
type Verdict string

// The verdicts. Their values are frozen.
const (
	// Incident: nearly all in one short episode that has ended. Replay is the
	// default.
	Incident Verdict = "incident"
	// Structural: on many days or in many episodes. A replay only brings the
	// same messages back.
	Structural Verdict = "structural"
	// Mixed: an incident, and others besides.
	Mixed Verdict = "mixed"
	// Ongoing: an episode that reaches the present.
	Ongoing Verdict = "ongoing"
	// Isolated: a handful.
	Isolated Verdict = "isolated"
)

// Thresholds are all numbers that verdicts depend on. Zero fields mean the
// defaults, which are beside them.
type Thresholds struct {
	Handful      int           // 5: as many or fewer are isolated
	Share        float64       // 0.95: the part that one episode holds in an incident
	MixedShare   float64       // 0.5: the part that it holds at least where an incident and others are mixed
	Short        time.Duration // 12h: an incident lasts no longer
	ManyDays     int           // 4: days with failures, from which on they are structural
	ManyEpisodes int           // 4: the same for episodes
	Silence      time.Duration // 1h: a silence that is not longer never ends an episode
	Density      float64       // 10: nor does one that is not as many times longer than the usual one
}

// WithDefaults returns t with its zero fields filled.
func (t Thresholds) WithDefaults() Thresholds {
	return Thresholds{
		Handful:      cmp.Or(t.Handful, 5),
		Share:        cmp.Or(t.Share, 0.95),
		MixedShare:   cmp.Or(t.MixedShare, 0.5),
		Short:        cmp.Or(t.Short, 12*time.Hour),
		ManyDays:     cmp.Or(t.ManyDays, 4),
		ManyEpisodes: cmp.Or(t.ManyEpisodes, 4),
		Silence:      cmp.Or(t.Silence, time.Hour),
		Density:      cmp.Or(t.Density, 10),
	}
}

// Validate reports every field that is out of its range.
func (t Thresholds) Validate() error {
	t = t.WithDefaults()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("thresholds: "+format, args...))
		}
	}
	bad(t.Handful < 0, "Handful: %d, want 0 or more", t.Handful)
	bad(!(t.Share > 0 && t.Share <= 1), "Share: %v, want more than 0 and at most 1", t.Share)
	bad(!(t.MixedShare > 0 && t.MixedShare <= t.Share), "MixedShare: %v, want more than 0 and at most Share", t.MixedShare)
	bad(t.Short < 0, "Short: %v, want more than 0", t.Short)
	bad(t.ManyDays < 2, "ManyDays: %d, want 2 or more", t.ManyDays)
	bad(t.ManyEpisodes < 2, "ManyEpisodes: %d, want 2 or more", t.ManyEpisodes)
	bad(t.Silence < joinWithin, "Silence: %v, want %v or more", t.Silence, joinWithin)
	bad(!(t.Density >= 1), "Density: %v, want 1 or more", t.Density)
	return errors.Join(errs...)
}

// String says in sentences what the thresholds mean.
func (t Thresholds) String() string {
	t = t.WithDefaults()
	return fmt.Sprintf(`Verdicts are drawn from all first attempts with the same class and signature, across consumer versions. They
are cut into episodes where the silence is longer than %[7]s and than %[8]s times the usual one.
  isolated    %[1]d or fewer
  incident    %[2]s or more in one episode of at most %[4]s, which has ended
  ongoing     such an episode, or a longer one, that reaches the present; or another one of more than %[1]d that does
  mixed       %[3]s or more in such an episode, and others besides; or a few short episodes
  structural  on %[5]d or more days, or in %[6]d or more episodes, or in one that lasted longer than %[4]s
`, t.Handful, percent(t.Share), percent(t.MixedShare), Span(t.Short), t.ManyDays, t.ManyEpisodes, Span(t.Silence),
		strconv.FormatFloat(t.Density, 'g', -1, 64))
}

// Judgement is a verdict with what it is drawn from.
type Judgement struct {
	Verdict  Verdict
	Reason   string    // one line
	Episodes []Episode // in the order of time
	Main     int       // the index of the largest episode; -1 without episodes
	Count    int64     // of the group and of its siblings of other versions
}

// Judge draws the verdict for the groups of one class and signature. l holds
// the first attempts of all consumer versions, and count says how many dead
// letters there are, also those of which no time is known. now is the present.
func (t Thresholds) Judge(l Timeline, count int64, now time.Time) Judgement {
	t = t.WithDefaults()
	// Silence is long compared with what is usual for this cause.
	// In milliseconds: times may be further apart than a Duration can be long.
	silence := max(t.Silence.Milliseconds(), int64(min(t.Density*float64(l.spacing()), float64(1<<62))))
	j := Judgement{Episodes: l.episodes(silence), Main: -1, Count: count}
	for i, e := range j.Episodes {
		if j.Main < 0 || e.Count > j.Episodes[j.Main].Count {
			j.Main = i
		}
	}
	if j.Main < 0 {
		j.Verdict, j.Reason = Isolated, plural(count, "message")+", without times"
		if count > int64(t.Handful) {
			j.Verdict, j.Reason = Structural, "no times are known, so nothing says that it was an incident"
		}
		return j
	}

	main, last := j.Episodes[j.Main], j.Episodes[len(j.Episodes)-1]
	count = max(count, l.Count())
	untimed := count - l.Count()
	share := float64(main.Count) / float64(count) // what has no time may have failed at any other
	length := main.Last.Sub(main.First)
	short := length <= t.Short
	// An episode is over when it has been silent for longer than its own
	// silences last. One that is later than the present is of a clock that is
	// ahead, and ends nothing.
	goesOn := func(e Episode) bool { return now.UnixMilli()-e.Last.UnixMilli() <= silence }
	mainOngoing := goesOn(main)
	recent := main // the latest that has begun
	for _, e := range j.Episodes[j.Main:] {
		if !e.First.After(now) {
			recent = e
		}
	}
	ongoing := goesOn(recent)
	days := l.days()
	spread := fmt.Sprintf("on %s in %s, over %s", plural(int64(days), "day"), plural(int64(len(j.Episodes)), "episode"),
		Span(last.Last.Sub(j.Episodes[0].First)))
	one := fmt.Sprintf("%s of %s in one episode of %s", sharePercent(main.Count, count), number(count), Span(length))
	ended := "that ended " + Span(now.Sub(main.Last)) + " ago"
	others := number(count-main.Count) + " besides"
	// A second episode that goes on is more than stragglers: a replay of the first
	// would meet what is wrong now.
	back := ongoing && !mainOngoing && recent.Count > int64(t.Handful)

	switch {
	case untimed > 0 && untimed >= count-untimed && count > int64(t.Handful) && !mainOngoing:
		j.Verdict, j.Reason = Structural, fmt.Sprintf("the times of %s of %s are not known, so nothing says that it was an incident", number(untimed), number(count))
		return j
	case count <= int64(t.Handful):
		j.Verdict, j.Reason = Isolated, plural(count, "message")+" "+spread
		if count == 1 {
			j.Reason = "1 message"
		}
	case short && share >= t.Share && mainOngoing:
		j.Verdict, j.Reason = Ongoing, one+" that has not ended"
	case short && share >= t.Share:
		j.Verdict, j.Reason = Incident, one+" "+ended
	case short && share >= t.MixedShare && main.Count > int64(t.Handful) && mainOngoing:
		j.Verdict, j.Reason = Ongoing, one+" that has not ended, and "+others
	case short && share >= t.MixedShare && back:
		j.Verdict, j.Reason = Ongoing, fmt.Sprintf("%s in an episode of %s that has not ended, and %s besides", number(recent.Count), Span(recent.Last.Sub(recent.First)), number(count-recent.Count))
	case short && share >= t.MixedShare && main.Count > int64(t.Handful):
		j.Verdict, j.Reason = Mixed, one+" "+ended+", and "+others
	case days >= t.ManyDays, len(j.Episodes) >= t.ManyEpisodes:
		j.Verdict, j.Reason = Structural, spread
		if ongoing {
			j.Reason += ", and still going on"
		}
	case ongoing:
		j.Verdict, j.Reason = Ongoing, spread+", and has not ended"
	case !short:
		j.Verdict, j.Reason = Structural, one+", longer than an incident of at most "+Span(t.Short)
	default:
		j.Verdict, j.Reason = Mixed, spread+", each short"
	}
	if untimed > 0 {
		j.Reason += "; " + number(untimed) + " without a time"
	}
	return j
}

// sharePercent never says 100% of what is not all.
func sharePercent(part, all int64) string {
	if part == all {
		return "all"
	}
	// In integers: 0.57 * 100 is less than 57.
	return strconv.FormatInt(part*100/all, 10) + "%"
}

func percent(x float64) string { return strconv.FormatFloat(x*100, 'f', -1, 64) + "%" }

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}

// number writes n with commas.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Span writes a length of time for people, in its two largest units: "2h5m",
// "11 months", "3d4h".
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, m time.Duration, small string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, m, small)
	}
	switch d = max(d, 0); {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	case d < 60*day:
		return two(d/day, "d", d%day/time.Hour, "h")
	case d < 2*365*day:
		return fmt.Sprintf("%d months", int64(d)/int64(day)*12/365)
	default:
		return fmt.Sprintf("%d years", d/(365*day))
	}
}
