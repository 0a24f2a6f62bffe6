package auditlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/examples/app/auditlog"
	"github.com/spillway-mq/spillway/failure"
)

const (
	ada  = `"sender":{"id":1,"login":"ada"}`
	repo = `"repository":{"id":3,"full_name":"mill/wheel","created_at":"2019-05-15T15:19:25Z"}`
	org  = `"organization":{"id":4,"login":"mill"}`
)

func project(p *auditlog.Projector, typ string, fields ...string) string {
	msg := message.NewMessage("1", []byte("{"+strings.Join(fields, ",")+"}"))
	msg.Metadata.Set("message-type", typ)
	err := p.Project(msg)
	if err == nil {
		return "logged"
	}
	f := failure.Classifier{}.Classify(err)
	text := fmt.Sprintf("%s %s", f.Nature, f.Class)
	for _, more := range []string{string(f.Code), f.Reference} {
		if more != "" {
			text += " " + more
		}
	}
	return text
}

func TestProjectFailsForWhatThePayloadSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ    string
		fields []string
		want   string
	}{
		"complete":               {"star.created", []string{ada, repo}, "logged"},
		"unknown kind":           {"weather.changed", []string{ada, repo}, "permanent incompatible_schema UNKNOWN_EVENT"},
		"no type":                {"", []string{ada, repo}, "permanent incompatible_schema UNKNOWN_EVENT"},
		"time as a number":       {"push", []string{ada, `"repository":{"created_at":1557933565}`}, "permanent undecodable json:UnmarshalTypeError"},
		"workflow as text":       {"workflow_dispatch", []string{ada, repo, `"workflow":".github/workflows/ci.yml"`}, "permanent undecodable json:UnmarshalTypeError"},
		"body as an object":      {"package.published", []string{ada, repo, `"package":{"package_version":{"body":{}}}`}, "permanent undecodable json:UnmarshalTypeError"},
		"no sender":              {"star.created", []string{repo}, "permanent validation NO_ACTOR"},
		"sender is null":         {"star.created", []string{`"sender":null`, repo}, "permanent validation NO_ACTOR"},
		"no repository":          {"star.created", []string{ada}, "permanent validation NO_REPOSITORY"},
		"no time":                {"star.created", []string{ada, `"repository":{}`}, "permanent validation NO_TIME"},
		"no organization":        {"team.created", []string{ada, repo}, "permanent validation NO_ORGANIZATION"},
		"no subject":             {"check_run.created", []string{ada, repo, `"check_run":null`}, "permanent validation NO_SUBJECT"},
		"author is null":         {"status", []string{ada, repo, `"commit":{"author":null}`}, "permanent validation NO_AUTHOR"},
		"renamed from nothing":   {"organization.renamed", []string{ada, org, `"action":"renamed"`}, "permanent validation NO_OLD_NAME"},
		"renamed":                {"organization.renamed", []string{ada, org, `"action":"renamed","changes":{"login":{"from":"old"}}`}, "logged"},
		"suite not seen":         {"check_run.created", []string{ada, repo, `"check_run":{"id":1,"check_suite":{"id":2}}`}, "ambiguous reference_not_found check_suite/2"},
		"installation not seen":  {"star.created", []string{ada, repo, `"installation":{"id":9}`}, "ambiguous unknown_installation installation/9"},
		"waiting for a reviewer": {"deployment_review.requested", []string{ada, repo, `"action":"requested","workflow_run":{"id":5}`}, "ambiguous unknown deployment-review/5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := project(&auditlog.Projector{}, c.typ, c.fields...); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatWasMissingArrivesAndWhatIsGoneStaysGone(t *testing.T) {
	t.Parallel()
	p := &auditlog.Projector{}
	run, suite := `"check_run":{"id":1,"check_suite":{"id":2}}`, `"check_suite":{"id":2}`
	got := []string{
		project(p, "check_run.created", ada, repo, run),
		project(p, "check_suite.requested", ada, repo, suite),
		project(p, "check_run.created", ada, repo, run),
		project(p, "label.deleted", ada, repo, `"action":"deleted","label":{"id":3}`),
		project(p, "label.edited", ada, repo, `"action":"edited","label":{"id":3}`),
	}
	want := []string{
		"ambiguous reference_not_found check_suite/2", "logged", "logged", "logged",
		"permanent validation SUBJECT_DELETED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if n := len(p.Entries()); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}
