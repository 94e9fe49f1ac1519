-- A server's database as an earlier version left it: a job at work, one that waits, money set aside, words, a wish and a delivery.
BEGIN TRANSACTION;
CREATE TABLE blobs (
	job VARCHAR(40) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (job, digest)
);
CREATE TABLE calls (
	job_id VARCHAR(128) NOT NULL, 
	call VARCHAR(200) NOT NULL, 
	attempt INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	worst BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cost BIGINT NOT NULL, 
	estimated BOOLEAN NOT NULL, 
	answer TEXT NOT NULL, 
	PRIMARY KEY (job_id, call, attempt)
);
INSERT INTO "calls" VALUES('working','plan.answer',1,'booked',120000,900,0,80,7300,0,'{"kept":"answer"}');
INSERT INTO "calls" VALUES('working','turn.1.answer',1,'reserved',90000,1000,0,0,4000,0,'');
CREATE TABLE job_contexts (
	job VARCHAR(40) NOT NULL, 
	repository BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	active_key VARCHAR(80), 
	priority INTEGER NOT NULL, 
	ready BOOLEAN NOT NULL, 
	context JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	due DOUBLE NOT NULL, 
	crashes INTEGER NOT NULL, 
	handed_over BOOLEAN NOT NULL, 
	posted_at DOUBLE NOT NULL, 
	posted_state VARCHAR(64) NOT NULL, 
	stop_reason TEXT NOT NULL, 
	PRIMARY KEY (job), 
	UNIQUE (active_key)
);
INSERT INTO "job_contexts" VALUES('working',2,3,'2#3',1,1,'{"issue_ref": {"installation": 1, "repository": 2, "owner": "ada", "name": "sample", "number": 3}, "aim": "fix", "trigger": "issue", "login": "ada", "author": {"name": "agent-fix[bot]", "email": "1+agent-fix[bot]@users.noreply.forge.example"}, "config": {"model": null, "fallbacks": [], "runner": null, "plan": "auto", "setup": null, "test": null, "lint": null, "network": [], "budget": {"usd": null, "minutes": null, "steps": null, "usd_per_day": null}, "protected_paths": [], "allowed_actors": [], "max_open_pull_requests": null, "pull_request": "final", "ci": "manual", "iterate": {"ci": true, "reviews": true, "conflicts": true, "max": 3}, "branch": null, "title": null, "labels": [], "reviewers": [], "instructions": null}, "publish_target": "new_branch", "base_ref": "main", "pull": null, "expected": "", "parents": [], "threads": [], "notes": []}',1795262400.0,1795262460.0,0.0,0,0,0.0,'','');
INSERT INTO "job_contexts" VALUES('asked',2,4,'2#4',1,1,'{"issue_ref": {"installation": 1, "repository": 2, "owner": "ada", "name": "sample", "number": 4}, "aim": "fix", "trigger": "issue", "login": "ada", "author": {"name": "agent-fix[bot]", "email": "1+agent-fix[bot]@users.noreply.forge.example"}, "config": {"model": null, "fallbacks": [], "runner": null, "plan": "auto", "setup": null, "test": null, "lint": null, "network": [], "budget": {"usd": null, "minutes": null, "steps": null, "usd_per_day": null}, "protected_paths": [], "allowed_actors": [], "max_open_pull_requests": null, "pull_request": "final", "ci": "manual", "iterate": {"ci": true, "reviews": true, "conflicts": true, "max": 3}, "branch": null, "title": null, "labels": [], "reviewers": [], "instructions": null}, "publish_target": "new_branch", "base_ref": "main", "pull": null, "expected": "", "parents": [], "threads": [], "notes": []}',1795262400.0,0.0,0.0,0,0,0.0,'','');
CREATE TABLE deliveries (
	seq INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	content VARCHAR(64) NOT NULL, 
	event VARCHAR(64) NOT NULL, 
	body BLOB, 
	state VARCHAR(8) NOT NULL, 
	attempts INTEGER NOT NULL, 
	owner VARCHAR(80), 
	due_at DATETIME NOT NULL, 
	received_at DATETIME NOT NULL, 
	done_at DATETIME, 
	outcome TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id), 
	UNIQUE (content)
);
INSERT INTO "deliveries" VALUES(1,'d-1','44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','issues',X'7B7D','waiting',0,NULL,'2026-11-21 12:00:00.000000','2026-11-21 12:00:00.000000',NULL,'');
CREATE TABLE inbox_write_checks (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE effects (
	seq INTEGER NOT NULL, 
	"key" VARCHAR(160) NOT NULL, 
	job VARCHAR(40) NOT NULL, 
	epoch INTEGER NOT NULL, 
	installation BIGINT NOT NULL, 
	issue_ref JSON NOT NULL, 
	effect JSON NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	revision INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	due DOUBLE NOT NULL, 
	attempts INTEGER NOT NULL, 
	owner VARCHAR(80) NOT NULL, 
	reason TEXT NOT NULL, 
	error JSON, 
	PRIMARY KEY (seq), 
	UNIQUE ("key")
);
INSERT INTO "effects" VALUES(1,'working/status_comment','working',1,1,'{"installation": 1, "repository": 2, "owner": "ada", "name": "sample", "number": 3}','{"kind": "status_comment", "body": "At work."}','71841b2915d82425ca91f77ce8a543c86eef436aa206f8b2b54ba2112e28ba2c',1,'wanted',1795262400.0,0,'','',NULL);
INSERT INTO "effects" VALUES(2,'working/tell_draft','working',1,1,'{"installation": 1, "repository": 2, "owner": "ada", "name": "sample", "number": 3}','{"kind": "tell_draft", "section": "At work.", "close": false, "branch": "", "commit": ""}','0000000000000000000000000000000000000000000000000000000000000000',1,'done',1795262400.0,0,'','',NULL);
INSERT INTO "effects" VALUES(3,'working/dress_pr/c1f9a2d4e5b6','working',1,1,'{"installation": 1, "repository": 2, "owner": "ada", "name": "sample", "number": 3}','{"kind": "dress_pr", "branch": "agent-fix/a", "labels": ["bug"], "reviewers": []}','0000000000000000000000000000000000000000000000000000000000000000',1,'wanted',1795262400.0,0,'','',NULL);
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	job JSON NOT NULL, 
	result JSON, 
	reason TEXT NOT NULL, 
	reported BOOLEAN NOT NULL, 
	stop_requested BOOLEAN NOT NULL, 
	owner VARCHAR(80), 
	epoch INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('working','2#3','queued','{"id": "working", "task": {"repository": "ada/sample", "issue": {"title": "Totals are wrong", "body": "They are.", "number": 3, "hidden_characters": 0}, "base": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "base_ref": "main", "slug": "totals-are-wrong", "requester": null, "origin": {"installation": 1, "repository": 2, "number": 3, "is_pull_request": false, "actor": 7}, "request": "", "sections": []}, "branch": "agent-fix/issue-3-totals-are-wrong", "budget": {"usd": 5000000, "minutes": 60.0, "steps": 100}, "model": "scripted/one", "runner": "native", "sandbox": "bubblewrap", "plan_mode": "auto", "plan_file": "", "aim": "fix", "conflicts": [], "created_at": "2026-11-21T12:00:00Z"}',NULL,'',0,0,'h:1:0',1,'2026-11-21 12:00:00.000000','2026-11-21 12:00:00.000000');
INSERT INTO "jobs" VALUES('asked','2#4','queued','{"id": "asked", "task": {"repository": "ada/sample", "issue": {"title": "Totals are wrong", "body": "They are.", "number": 4, "hidden_characters": 0}, "base": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "base_ref": "main", "slug": "totals-are-wrong", "requester": null, "origin": {"installation": 1, "repository": 2, "number": 4, "is_pull_request": false, "actor": 7}, "request": "", "sections": []}, "branch": "agent-fix/issue-4-totals-are-wrong", "budget": {"usd": 5000000, "minutes": 60.0, "steps": 100}, "model": "scripted/one", "runner": "native", "sandbox": "bubblewrap", "plan_mode": "auto", "plan_file": "", "aim": "fix", "conflicts": [], "created_at": "2026-11-21T12:00:00Z"}',NULL,'',0,0,NULL,0,'2026-11-21 12:00:00.000000','2026-11-21 12:00:00.000000');
CREATE TABLE poll_cursors (
	repository BIGINT NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY (repository)
);
CREATE TABLE messages (
	seq INTEGER NOT NULL, 
	"key" VARCHAR(160) NOT NULL, 
	job VARCHAR(40) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	who VARCHAR(80) NOT NULL, 
	text TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE ("key")
);
INSERT INTO "messages" VALUES(1,'r2/comment:7','working','steer','ada','mind the tests',1795262400.0);
CREATE TABLE commit_transfer_chunks (
	pack VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	written_at FLOAT NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (pack, number)
);
CREATE TABLE commit_transfers (
	repository BIGINT NOT NULL, 
	commit_id VARCHAR(40) NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	pack VARCHAR(32) NOT NULL, 
	chunks INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	failures INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	requested_at FLOAT NOT NULL, 
	used_at FLOAT NOT NULL, 
	log BLOB, 
	PRIMARY KEY (repository, commit_id)
);
CREATE TABLE progress (
	seq INTEGER NOT NULL, 
	job VARCHAR(40) NOT NULL, 
	at DATETIME NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE receipts (
	"key" VARCHAR(160) NOT NULL, 
	revision INTEGER NOT NULL, 
	job VARCHAR(40) NOT NULL, 
	receipt JSON NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY ("key", revision)
);
INSERT INTO "receipts" VALUES('working/tell_draft',1,'working','{"url": "https://forge.example/pull/9", "branch": "", "onto": ""}',1795262400.0);
CREATE TABLE triggers (
	"key" VARCHAR(160) NOT NULL, 
	repository BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	actor BIGINT NOT NULL, 
	verb VARCHAR(32) NOT NULL, 
	at DOUBLE NOT NULL, 
	outcome TEXT NOT NULL, 
	job VARCHAR(40) NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "triggers" VALUES('r2/working',2,3,7,'fix',1795262400.0,'job working','working');
INSERT INTO "triggers" VALUES('r2/asked',2,4,7,'fix',1795262400.0,'job asked','asked');
CREATE INDEX ix_jobs_key ON jobs ("key");
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX ix_progress_job ON progress (job);
CREATE INDEX ix_job_contexts_repository ON job_contexts (repository);
CREATE INDEX ix_messages_job ON messages (job);
CREATE INDEX ix_triggers_place ON triggers (repository, number);
CREATE INDEX ix_triggers_actor ON triggers (repository, actor, at);
CREATE INDEX deliveries_due ON deliveries (state, due_at);
CREATE INDEX ix_effects_job ON effects (job);
CREATE INDEX ix_effects_state_due ON effects (state, due);
CREATE INDEX ix_receipts_job ON receipts (job);
CREATE INDEX ix_calls_money ON calls (job_id, state, cost);
COMMIT;
