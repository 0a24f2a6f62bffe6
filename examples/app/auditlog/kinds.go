package auditlog

// scope says which object of an event tells where it happened.
type scope int

const (
	anywhere scope = iota
	inRepository
	inOrganization
)

// kind is what the projection knows of a kind of event. A kind that is not in
// the table has no place in the log yet.
type kind struct {
	scope scope
	// subject is what the event is about; nil for kinds that are only logged.
	subject func(*event) ref
	// parent must be known before the subject makes sense.
	parent func(*event) ref
}

var kinds = map[string]kind{
	"branch_protection_rule": {scope: inRepository},
	"code_scanning_alert":    {scope: inRepository},
	"commit_comment":         {scope: inRepository},
	"create":                 {scope: inRepository},
	"delete":                 {scope: inRepository},
	"dependabot_alert":       {scope: inRepository},
	"deploy_key":             {scope: inRepository},
	"fork":                   {scope: inRepository},
	"gollum":                 {scope: inRepository},
	"member":                 {scope: inRepository},
	"merge_group":            {scope: inRepository},
	"package":                {scope: inRepository},
	"page_build":             {scope: inRepository},
	"ping":                   {scope: anywhere},
	"public":                 {scope: inRepository},
	"pull_request":           {scope: inRepository},
	"pull_request_review":    {scope: inRepository},
	"push":                   {scope: inRepository},
	"repository":             {scope: inRepository},
	"repository_dispatch":    {scope: inRepository},
	"secret_scanning_alert":  {scope: inRepository},
	"security_advisory":      {scope: anywhere},
	"star":                   {scope: inRepository},
	"status":                 {scope: inRepository},
	"watch":                  {scope: inRepository},
	"workflow_dispatch":      {scope: inRepository},

	"org_block":        {scope: inOrganization},
	"organization":     {scope: inOrganization},
	"projects_v2_item": {scope: inOrganization},

	"repository_vulnerability_alert": {scope: inRepository},

	"check_suite": {scope: inRepository, subject: func(e *event) ref { return of("check_suite", e.CheckSuite) }},
	"check_run": {
		scope: inRepository,
		subject: func(e *event) ref {
			if e.CheckRun == nil {
				return ref{}
			}
			return of("check_run", &e.CheckRun.thing)
		},
		parent: func(e *event) ref { return of("check_suite", e.CheckRun.CheckSuite) },
	},
	"workflow_run": {scope: inRepository, subject: func(e *event) ref { return of("workflow_run", e.WorkflowRun) }},
	"workflow_job": {
		scope: inRepository,
		subject: func(e *event) ref {
			if e.WorkflowJob == nil {
				return ref{}
			}
			return of("workflow_job", &e.WorkflowJob.thing)
		},
		parent: func(e *event) ref { return of("workflow_run", &thing{e.WorkflowJob.RunID}) },
	},
	"deployment":        {scope: inRepository, subject: func(e *event) ref { return of("deployment", e.Deployment) }},
	"deployment_review": {scope: inRepository, subject: func(e *event) ref { return of("workflow_run", e.WorkflowRun) }},
	"deployment_status": {
		scope:   inRepository,
		subject: func(e *event) ref { return of("deployment_status", e.DeploymentStatus) },
		parent:  func(e *event) ref { return of("deployment", e.Deployment) },
	},
	"discussion": {scope: inRepository, subject: func(e *event) ref { return of("discussion", e.Discussion) }},
	"discussion_comment": {
		scope:   inRepository,
		subject: func(e *event) ref { return of("discussion_comment", e.Comment) },
		parent:  func(e *event) ref { return of("discussion", e.Discussion) },
	},
	"issues": {scope: inRepository, subject: func(e *event) ref { return of("issue", e.Issue) }},
	"issue_comment": {
		scope:   inRepository,
		subject: func(e *event) ref { return of("issue_comment", e.Comment) },
		parent:  func(e *event) ref { return of("issue", e.Issue) },
	},
	"label":     {scope: inRepository, subject: func(e *event) ref { return of("label", e.Label) }},
	"milestone": {scope: inRepository, subject: func(e *event) ref { return of("milestone", e.Milestone) }},
	"project":   {scope: inRepository, subject: func(e *event) ref { return of("project", e.Project) }},
	"project_column": {
		scope:   inRepository,
		subject: func(e *event) ref { return of("project_column", e.ProjectColumn) },
	},
	"project_card": {
		scope: inRepository,
		subject: func(e *event) ref {
			if e.ProjectCard == nil {
				return ref{}
			}
			return of("project_card", &e.ProjectCard.thing)
		},
		parent: func(e *event) ref { return of("project_column", &thing{e.ProjectCard.ColumnID}) },
	},
	"release": {scope: inRepository, subject: func(e *event) ref { return of("release", e.Release) }},

	"team":       {scope: inOrganization, subject: func(e *event) ref { return of("team", e.Team) }},
	"membership": {scope: inOrganization, parent: func(e *event) ref { return of("team", e.Team) }},
	"team_add":   {scope: inOrganization, parent: func(e *event) ref { return of("team", e.Team) }},

	"installation":              {scope: anywhere, subject: installed},
	"installation_repositories": {scope: anywhere, subject: installed},
}

func installed(e *event) ref {
	if e.Installation == nil {
		return ref{}
	}
	return ref{"installation", e.Installation.ID}
}
