package auditlog

import (
	"strconv"
)

// event is what the projection reads of a webhook. It is strict on purpose: an
// audit log that guesses is none.
type event struct {
	Action       string        `json:"action"`
	Sender       *account      `json:"sender"`
	Organization *account      `json:"organization"`
	Repository   *repository   `json:"repository"`
	Installation *installation `json:"installation"`

	CheckRun *struct {
		thing
		CheckSuite *thing `json:"check_suite"`
	} `json:"check_run"`
	CheckSuite  *thing `json:"check_suite"`
	WorkflowRun *thing `json:"workflow_run"`
	WorkflowJob *struct {
		thing
		RunID int64 `json:"run_id"`
	} `json:"workflow_job"`
	Workflow         *thing `json:"workflow"`
	Deployment       *thing `json:"deployment"`
	DeploymentStatus *thing `json:"deployment_status"`
	Issue            *thing `json:"issue"`
	Discussion       *thing `json:"discussion"`
	Comment          *thing `json:"comment"`
	Label            *thing `json:"label"`
	Milestone        *thing `json:"milestone"`
	Project          *thing `json:"project"`
	ProjectColumn    *thing `json:"project_column"`
	ProjectCard      *struct {
		thing
		ColumnID int64 `json:"column_id"`
	} `json:"project_card"`
	Release *thing `json:"release"`
	Team    *thing `json:"team"`
	Package *struct {
		thing
		Version *struct {
			Body string `json:"body"`
		} `json:"package_version"`
	} `json:"package"`
	Commit *struct {
		Author *account `json:"author"`
	} `json:"commit"`
	Changes *struct {
		Login *struct {
			From string `json:"from"`
		} `json:"login"`
	} `json:"changes"`
}

type thing struct {
	ID int64 `json:"id"`
}

type account struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

type repository struct {
	ID        int64  `json:"id"`
	FullName  string `json:"full_name"`
	CreatedAt string `json:"created_at"`
}

type installation struct {
	ID      int64    `json:"id"`
	Account *account `json:"account"` // only in events about installations
}

// ref names something that events are about: "check_suite/118578147".
type ref struct {
	kind string
	id   int64
}

func (r ref) String() string { return r.kind + "/" + strconv.FormatInt(r.id, 10) }

// of is a ref to t, or to nothing.
func of(kind string, t *thing) ref {
	if t == nil || t.ID == 0 {
		return ref{}
	}
	return ref{kind, t.ID}
}
