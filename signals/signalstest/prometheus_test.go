package signalstest

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// server is a little Prometheus: it keeps what it scraped of registries, and
// evaluates PromQL over it.
type server struct {
	t      *testing.T
	series map[uint64]*series
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newServer(t *testing.T) *server { return &server{t: t, series: map[uint64]*series{}} }

// scrape stores what reg shows now, as the target named instance. Unlike
// Prometheus, it writes no staleness markers for what disappeared.
func (s *server) scrape(instance string, reg prometheus.Gatherer) {
	s.t.Helper()
	families, err := reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			at := func(suffix string, v float64, more ...string) {
				pairs := append([]string{model.MetricNameLabel, f.GetName() + suffix, model.InstanceLabel, instance}, more...)
				for _, l := range m.GetLabel() {
					// To Prometheus, an empty label is none.
					if l.GetValue() != "" {
						pairs = append(pairs, l.GetName(), l.GetValue())
					}
				}
				s.append(labels.FromStrings(pairs...), now, v)
			}
			switch {
			case m.Counter != nil:
				at("", m.Counter.GetValue())
			case m.Gauge != nil:
				at("", m.Gauge.GetValue())
			case m.Histogram != nil:
				n := float64(m.Histogram.GetSampleCount())
				at("_count", n)
				at("_sum", m.Histogram.GetSampleSum())
				for _, b := range m.Histogram.GetBucket() {
					at("_bucket", float64(b.GetCumulativeCount()), model.BucketLabel, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
				}
				at("_bucket", n, model.BucketLabel, "+Inf")
			default:
				s.t.Fatalf("%s is of a type that the test does not know", f.GetName())
			}
		}
	}
}

func (s *server) append(l labels.Labels, ms int64, v float64) {
	ser := s.series[l.Hash()]
	if ser == nil {
		ser = &series{labels: l}
		s.series[l.Hash()] = ser
	}
	ser.samples = append(ser.samples, sample{ms, v})
}

// query evaluates expr at an instant, and returns its vector by labels.
func (s *server) query(expr string, at time.Time) map[string]float64 {
	s.t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	q, err := engine.NewInstantQuery(context.Background(), s, nil, expr, at)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, expr)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	vector, err := res.Vector()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, expr)
	}
	if len(res.Warnings) > 0 {
		s.t.Errorf("warnings: %v\n%s", res.Warnings, expr)
	}
	got := map[string]float64{}
	for _, p := range vector {
		var kv []string
		p.Metric.Range(func(l labels.Label) { kv = append(kv, l.Name+"="+l.Value) })
		got[strings.Join(kv, " ")] = p.F
	}
	return got
}

// Querier implements [storage.Queryable].
func (s *server) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := []storage.Series{nil} // Next comes before the first At
		for _, ser := range s.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(ser.labels.Get(m.Name)) }) {
				found = append(found, storage.NewListSeries(ser.labels, ser.samples))
			}
		}
		return &seriesIterator{rest: found}
	}}, nil
}

// seriesIterator implements [storage.SeriesSet].
type seriesIterator struct{ rest []storage.Series }

func (i *seriesIterator) Next() bool                        { i.rest = i.rest[1:]; return len(i.rest) > 0 }
func (i *seriesIterator) At() storage.Series                { return i.rest[0] }
func (i *seriesIterator) Err() error                        { return nil }
func (i *seriesIterator) Warnings() annotations.Annotations { return nil }

// sample implements [chunks.Sample] for a float.
type sample struct {
	ms int64
	v  float64
}

func (s sample) T() int64                      { return s.ms }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// documentation is what docs/metrics.md tells people to copy.
type documentation struct {
	queries map[string]string
	alerts  map[string]rulefmt.Rule
}

func readDocumentation(t *testing.T) documentation {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	d := documentation{queries: map[string]string{}, alerts: map[string]rulefmt.Rule{}}
	for _, m := range regexp.MustCompile("(?s)<!-- query: (\\w+) -->\n```promql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		d.queries[m[1]] = m[2]
	}
	if all := strings.Count(string(page), "```promql"); all != len(d.queries) {
		t.Fatalf("%d promql blocks, of which %d have a name", all, len(d.queries))
	}
	rules := regexp.MustCompile("(?s)<!-- rules -->\n```yaml\n(.*?)```").FindStringSubmatch(string(page))
	if rules == nil {
		t.Fatal("no rules in docs/metrics.md")
	}
	groups, errs := rulefmt.Parse([]byte(rules[1]), false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			d.alerts[r.Alert] = r
		}
	}
	return d
}

// query returns a documented query, or the expression of a documented alert.
func (d documentation) query(t *testing.T, name string) string {
	t.Helper()
	if q, ok := d.queries[name]; ok {
		return q
	}
	if r, ok := d.alerts[name]; ok {
		return r.Expr
	}
	t.Fatalf("docs/metrics.md has no %s", name)
	return ""
}

// selectors returns the metrics that expr names.
func selectors(t *testing.T, expr string) []string {
	t.Helper()
	e, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%v\n%s", err, expr)
	}
	var names []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	if len(names) == 0 {
		t.Fatalf("no metric in %s", expr)
	}
	return names
}
