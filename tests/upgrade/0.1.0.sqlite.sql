-- SQLite dump (by APSW 3.54.1.0)
-- SQLite version 3.54.1
-- Date: Wed Nov 18 07:36:03 2026
-- Tables like: (All)
-- Database: post.db
-- User: root @ vm

-- The values of various per-database settings
PRAGMA page_size=4096;
-- PRAGMA encoding='UTF-8';
-- PRAGMA auto_vacuum=NONE;
-- PRAGMA max_page_count=4294967294;

BEGIN TRANSACTION;

-- Table  archive_exports
DROP TABLE IF EXISTS archive_exports;
CREATE TABLE "archive_exports" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "table_name" TEXT,
    "month" TEXT,
    "part" INTEGER,
    "path" TEXT,
    "row_count" INTEGER,
    "byte_count" INTEGER,
    "checksum" TEXT,
    "verified_at" TEXT,
    "drop_eligible_at" TEXT,
    "dropped_at" TEXT
);
INSERT INTO archive_exports VALUES('parcels:2026-11:1','filling',0,'2026-11-18 07:36:03.185572+00:00',0,NULL,NULL,'2026-11-18 07:36:03.185572+00:00','2026-11-18 07:36:03.185572+00:00','parcels','2026-11',1,'parcels/year=2026/month=11/part-00001.parquet',0,0,'',NULL,NULL,NULL);
-- Triggers and indices on  archive_exports
CREATE INDEX "esclusa_archive_exports_status_fe007f46" ON "archive_exports" ("status", "updated_at");

-- Table  archive_parcels
DROP TABLE IF EXISTS archive_parcels;
CREATE TABLE "archive_parcels" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT,
    "attempts" INTEGER,
    "due_at" TEXT,
    "fence" INTEGER,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT,
    "updated_at" TEXT,
    "number" INTEGER,
    "weight" INTEGER,
    "ordered_at" TEXT,
    archived_at TEXT NOT NULL,
    export_id TEXT
);
INSERT INTO archive_parcels VALUES('1','sent',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,NULL,'2026-11-18 07:36:03.015345+00:00','2026-11-18 07:36:03.105493+00:00',1,1,'2026-11-01 12:00:00.000000+00:00','2026-11-18 07:36:03.187683+00:00','parcels:2026-11:1');
-- Triggers and indices on  archive_parcels
CREATE INDEX "esclusa_archive_parcels_archived_at_0d2eb261" ON "archive_parcels" (archived_at);
CREATE INDEX "esclusa_archive_parcels_export_7d2dc969" ON "archive_parcels" (export_id, "id");

-- Table  customers
DROP TABLE IF EXISTS customers;
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT, "check_status" TEXT, "check_attempts" INTEGER, "check_due_at" TEXT, "check_fence" INTEGER, "check_leased_by" TEXT, "check_last_error" TEXT, "check_updated_at" TEXT);
INSERT INTO customers VALUES(1,'ada@example.org',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO customers VALUES(2,'alan@example.org',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
-- Triggers and indices on  customers
CREATE INDEX "esclusa_customers_status_3339cd37" ON "customers" (COALESCE("check_status", 'waiting'), "check_updated_at");

-- Table  dead_letters
DROP TABLE IF EXISTS dead_letters;
CREATE TABLE "dead_letters" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "table_name" TEXT,
    "record_id" TEXT,
    "state_before" TEXT,
    "error_type" TEXT,
    "error_message" TEXT,
    "reason" TEXT,
    "payload" TEXT
);
INSERT INTO dead_letters VALUES('01a1ed95-8b22-7e29-a253-eb8cecdddfa2','open',1,'2026-11-18 07:36:03.105493+00:00',0,NULL,NULL,'2026-11-18 07:36:03.105493+00:00','2026-11-18 07:36:03.105493+00:00','parcels','6','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"6","status":"sending","attempts":1,"due_at":"2026-11-18T07:37:03.090924Z","last_error":null,"created_at":"2026-11-18T07:36:03.017356Z","updated_at":"2026-11-18T07:36:03.090924Z","number":6,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T07:36:03.098642+00:00"}');
INSERT INTO dead_letters VALUES('01a1ed95-8b22-7269-80b9-d6629979ceea','open',0,'2026-11-18 07:36:03.901787+00:00',24,NULL,NULL,'2026-11-18 07:36:03.105493+00:00','2026-11-18 07:36:03.901787+00:00','parcels','7','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"7","status":"sending","attempts":1,"due_at":"2026-11-18T07:37:03.090924Z","last_error":null,"created_at":"2026-11-18T07:36:03.017356Z","updated_at":"2026-11-18T07:36:03.090924Z","number":7,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T07:36:03.100417+00:00"}');
INSERT INTO dead_letters VALUES('01a1ed95-8b22-79fb-b2a1-97d4d6edbd5d','redriven',1,'2026-11-18 07:36:03.818004+00:00',1,NULL,NULL,'2026-11-18 07:36:03.105493+00:00','2026-11-18 07:36:03.818004+00:00','parcels','8','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"8","status":"sending","attempts":1,"due_at":"2026-11-18T07:37:03.090924Z","last_error":null,"created_at":"2026-11-18T07:36:03.017356Z","updated_at":"2026-11-18T07:36:03.090924Z","number":8,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T07:36:03.100417+00:00"}');
INSERT INTO dead_letters VALUES('01a1ed95-8dfa-774f-aca9-ac5dff9293ad','open',1,'2026-11-18 07:36:03.834242+00:00',0,NULL,NULL,'2026-11-18 07:36:03.834242+00:00','2026-11-18 07:36:03.834242+00:00','parcels','8','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"8","status":"sending","attempts":1,"due_at":"2026-11-18T07:37:03.832115Z","last_error":{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.100417+00:00","attempt":1},"created_at":"2026-11-18T07:36:03.017356Z","updated_at":"2026-11-18T07:36:03.832115Z","number":8,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T07:36:03.833384+00:00"}');
-- Triggers and indices on  dead_letters
CREATE INDEX "esclusa_dead_letters_status_ab5db2e3" ON "dead_letters" ("status", "updated_at");
CREATE INDEX "esclusa_dead_letters_status_error_type_8ea92ef7" ON "dead_letters" ("status", "error_type");
CREATE INDEX "esclusa_dead_letters_table_name_record_id_f62f3ff6" ON "dead_letters" ("table_name", "record_id");

-- Table  esclusa_alerts
DROP TABLE IF EXISTS esclusa_alerts;
CREATE TABLE "esclusa_alerts" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "name" TEXT,
    "subject" TEXT,
    "number" INTEGER,
    "message" TEXT,
    "raised_at" TEXT,
    "ended_at" TEXT,
    "confirmed_at" TEXT,
    "confirmed_by" TEXT,
    "details" TEXT
);
INSERT INTO esclusa_alerts VALUES('cycle_failed:post.misfire:1','raised',0,'2026-11-18 07:36:03.789941+00:00',0,NULL,NULL,'2026-11-18 07:36:03.789941+00:00','2026-11-18 07:36:03.789941+00:00','cycle_failed','post.misfire',1,'{"code": "cycle_failed", "cycle": "post.misfire", "why": "RuntimeError: no fuel"}','2026-11-18 07:36:03.782253+00:00',NULL,'2026-11-18 07:36:03.782253+00:00','vm-2428-bf9e','{"run":"post.misfire:20261118T073603.195680Z-vm-2428-bf9e"}');
-- Triggers and indices on  esclusa_alerts
CREATE INDEX "esclusa_esclusa_alerts_begun_at_a1f57bd0" ON "esclusa_alerts" ("raised_at" DESC);
CREATE INDEX "esclusa_esclusa_alerts_name_subject_number_328431f3" ON "esclusa_alerts" ("name", "subject", "number" DESC);
CREATE INDEX "esclusa_esclusa_alerts_status_6f2cb34a" ON "esclusa_alerts" ("status", "updated_at");

-- Table  esclusa_audit
DROP TABLE IF EXISTS esclusa_audit;
CREATE TABLE "esclusa_audit" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "who" TEXT,
    "verb" TEXT,
    "subject" TEXT,
    "filter" TEXT,
    "affected" INTEGER,
    "reason" TEXT,
    "done_at" TEXT
);
INSERT INTO esclusa_audit VALUES('01a1ed95-8b58-7231-a964-a576e6622349','kept',0,'2026-11-18 07:36:03.156739+00:00',0,NULL,NULL,'2026-11-18 07:36:03.156739+00:00','2026-11-18 07:36:03.156739+00:00','ana','run','post.deliver','{}',8,'','2026-11-18 07:36:03.149706+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8b7b-7745-aefb-d074524f8040','kept',0,'2026-11-18 07:36:03.195083+00:00',0,NULL,NULL,'2026-11-18 07:36:03.195083+00:00','2026-11-18 07:36:03.195083+00:00','ana','run','post.store-away','{}',0,'','2026-11-18 07:36:03.194021+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8dd9-7b97-a395-7409483447e2','kept',0,'2026-11-18 07:36:03.801311+00:00',0,NULL,NULL,'2026-11-18 07:36:03.801311+00:00','2026-11-18 07:36:03.801311+00:00','ana','run','post.misfire','{}',0,'','2026-11-18 07:36:03.794164+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8def-76ae-96ee-230ee22174eb','kept',0,'2026-11-18 07:36:03.823609+00:00',0,NULL,NULL,'2026-11-18 07:36:03.823609+00:00','2026-11-18 07:36:03.823609+00:00','ana','redrive','dead_letters','{"record_id":"8","status":"open"}',1,'try again','2026-11-18 07:36:03.823483+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8dfe-7a10-821b-c6394c2f242b','kept',0,'2026-11-18 07:36:03.838449+00:00',0,NULL,NULL,'2026-11-18 07:36:03.838449+00:00','2026-11-18 07:36:03.838449+00:00','ana','run','post.deliver','{}',1,'','2026-11-18 07:36:03.837339+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e01-71da-b8ee-e68bb9c1d6c7','kept',0,'2026-11-18 07:36:03.841371+00:00',0,NULL,NULL,'2026-11-18 07:36:03.841371+00:00','2026-11-18 07:36:03.841371+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.841182+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e04-7d31-b1c4-6b18ab777561','kept',0,'2026-11-18 07:36:03.843997+00:00',0,NULL,NULL,'2026-11-18 07:36:03.843997+00:00','2026-11-18 07:36:03.843997+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.843884+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e06-7c15-887b-4687d19181fc','kept',0,'2026-11-18 07:36:03.846697+00:00',0,NULL,NULL,'2026-11-18 07:36:03.846697+00:00','2026-11-18 07:36:03.846697+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.846586+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e09-774a-8952-bb01231839bf','kept',0,'2026-11-18 07:36:03.849425+00:00',0,NULL,NULL,'2026-11-18 07:36:03.849425+00:00','2026-11-18 07:36:03.849425+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.849223+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e0c-7954-ae33-6352061df0d5','kept',0,'2026-11-18 07:36:03.851971+00:00',0,NULL,NULL,'2026-11-18 07:36:03.851971+00:00','2026-11-18 07:36:03.851971+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.851858+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e0e-7125-928a-a556ba18111b','kept',0,'2026-11-18 07:36:03.854657+00:00',0,NULL,NULL,'2026-11-18 07:36:03.854657+00:00','2026-11-18 07:36:03.854657+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.854543+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e11-7c8e-901c-c3505433518b','kept',0,'2026-11-18 07:36:03.857145+00:00',0,NULL,NULL,'2026-11-18 07:36:03.857145+00:00','2026-11-18 07:36:03.857145+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.857034+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e13-7df9-8ab2-8a74df772a91','kept',0,'2026-11-18 07:36:03.859807+00:00',0,NULL,NULL,'2026-11-18 07:36:03.859807+00:00','2026-11-18 07:36:03.859807+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.859684+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e16-714b-b640-21e95dc3d7e7','kept',0,'2026-11-18 07:36:03.862615+00:00',0,NULL,NULL,'2026-11-18 07:36:03.862615+00:00','2026-11-18 07:36:03.862615+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.862495+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e19-73f9-9cd8-f0f3ef869d07','kept',0,'2026-11-18 07:36:03.865068+00:00',0,NULL,NULL,'2026-11-18 07:36:03.865068+00:00','2026-11-18 07:36:03.865068+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.864955+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e1b-7985-96db-101392566547','kept',0,'2026-11-18 07:36:03.867670+00:00',0,NULL,NULL,'2026-11-18 07:36:03.867670+00:00','2026-11-18 07:36:03.867670+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.867550+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e1e-7d5f-ae91-4907a81614a7','kept',0,'2026-11-18 07:36:03.870401+00:00',0,NULL,NULL,'2026-11-18 07:36:03.870401+00:00','2026-11-18 07:36:03.870401+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.870275+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e20-7c1f-8c2c-af24f766f48a','kept',0,'2026-11-18 07:36:03.872895+00:00',0,NULL,NULL,'2026-11-18 07:36:03.872895+00:00','2026-11-18 07:36:03.872895+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.872778+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e23-7b7c-a000-f3b24d9275b9','kept',0,'2026-11-18 07:36:03.875658+00:00',0,NULL,NULL,'2026-11-18 07:36:03.875658+00:00','2026-11-18 07:36:03.875658+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.875539+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e26-7dd9-8b1e-8552009b3e5f','kept',0,'2026-11-18 07:36:03.878365+00:00',0,NULL,NULL,'2026-11-18 07:36:03.878365+00:00','2026-11-18 07:36:03.878365+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.878254+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e29-75f9-9239-b081cfb229fd','kept',0,'2026-11-18 07:36:03.881050+00:00',0,NULL,NULL,'2026-11-18 07:36:03.881050+00:00','2026-11-18 07:36:03.881050+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.880859+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e2b-7e09-ad54-567bfef5ed27','kept',0,'2026-11-18 07:36:03.883649+00:00',0,NULL,NULL,'2026-11-18 07:36:03.883649+00:00','2026-11-18 07:36:03.883649+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.883530+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e2e-7ff7-9be1-adf8bf8d75eb','kept',0,'2026-11-18 07:36:03.886267+00:00',0,NULL,NULL,'2026-11-18 07:36:03.886267+00:00','2026-11-18 07:36:03.886267+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.886145+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e30-7be9-872e-94c8a2845ba0','kept',0,'2026-11-18 07:36:03.888823+00:00',0,NULL,NULL,'2026-11-18 07:36:03.888823+00:00','2026-11-18 07:36:03.888823+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.888702+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e33-7f97-9474-5ae2ffe35987','kept',0,'2026-11-18 07:36:03.891392+00:00',0,NULL,NULL,'2026-11-18 07:36:03.891392+00:00','2026-11-18 07:36:03.891392+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.891279+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e36-7ce2-9ddd-5845d8a0e19f','kept',0,'2026-11-18 07:36:03.893992+00:00',0,NULL,NULL,'2026-11-18 07:36:03.893992+00:00','2026-11-18 07:36:03.893992+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.893872+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e39-79ac-be30-bd3f32a5a61c','kept',0,'2026-11-18 07:36:03.897226+00:00',0,NULL,NULL,'2026-11-18 07:36:03.897226+00:00','2026-11-18 07:36:03.897226+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.897110+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e3b-759c-9c31-8ddb3ccc4d12','kept',0,'2026-11-18 07:36:03.899850+00:00',0,NULL,NULL,'2026-11-18 07:36:03.899850+00:00','2026-11-18 07:36:03.899850+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.899731+00:00');
INSERT INTO esclusa_audit VALUES('01a1ed95-8e3e-7c5d-b7d2-9c888f12415d','kept',0,'2026-11-18 07:36:03.902582+00:00',0,NULL,NULL,'2026-11-18 07:36:03.902582+00:00','2026-11-18 07:36:03.902582+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 07:36:03.902459+00:00');
-- Triggers and indices on  esclusa_audit
CREATE INDEX "esclusa_esclusa_audit_done_at_1e3d58ce" ON "esclusa_audit" ("done_at" DESC);
CREATE INDEX "esclusa_esclusa_audit_status_e66880fe" ON "esclusa_audit" ("status", "updated_at");

-- Table  esclusa_budgets
DROP TABLE IF EXISTS esclusa_budgets;
CREATE TABLE esclusa_budgets (
    name TEXT NOT NULL,
    per TEXT NOT NULL,
    start TEXT NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    limit_seen INTEGER,
    until TEXT,
    spenders TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (name, per, start)
) WITHOUT ROWID;
INSERT INTO esclusa_budgets VALUES('post','month','2026-11-01 00:00:00.000000+00:00',9,NULL,NULL,'{"post.send": 9}');

-- Table  esclusa_calls
DROP TABLE IF EXISTS esclusa_calls;
CREATE TABLE "esclusa_calls" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "who" TEXT,
    "key" TEXT,
    "fingerprint" TEXT,
    "called_at" TEXT,
    "code" INTEGER,
    "body" TEXT,
    "media_type" TEXT
);
-- Triggers and indices on  esclusa_calls
CREATE INDEX "esclusa_esclusa_calls_called_at_d7e81268" ON "esclusa_calls" ("called_at");
CREATE INDEX "esclusa_esclusa_calls_status_e7e54237" ON "esclusa_calls" ("status", "updated_at");

-- Table  esclusa_cycles
DROP TABLE IF EXISTS esclusa_cycles;
CREATE TABLE "esclusa_cycles" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "cycle" TEXT,
    "schedule" TEXT
);
INSERT INTO esclusa_cycles VALUES('post.deliver','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','post.deliver','every 1h');
INSERT INTO esclusa_cycles VALUES('post.store-away','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','post.store-away','every 1d');
INSERT INTO esclusa_cycles VALUES('post.misfire','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','post.misfire','every 1d');
INSERT INTO esclusa_cycles VALUES('esclusa.end-dead-runs','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','esclusa.end-dead-runs','every 10s');
INSERT INTO esclusa_cycles VALUES('esclusa.end-dead-workers','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','esclusa.end-dead-workers','every 10s');
INSERT INTO esclusa_cycles VALUES('esclusa.prune','idle',0,'2026-11-18 07:36:03.029857+00:00',0,NULL,NULL,'2026-11-18 07:36:03.030619+00:00','2026-11-18 07:36:03.030619+00:00','esclusa.prune','every 1h');
-- Triggers and indices on  esclusa_cycles
CREATE INDEX "esclusa_esclusa_cycles_status_d843a641" ON "esclusa_cycles" ("status", "updated_at");

-- Table  esclusa_ended_sessions
DROP TABLE IF EXISTS esclusa_ended_sessions;
CREATE TABLE "esclusa_ended_sessions" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "session" TEXT,
    "ended_at" TEXT
);
-- Triggers and indices on  esclusa_ended_sessions
CREATE INDEX "esclusa_esclusa_ended_sessions_ended_at_4c1693cc" ON "esclusa_ended_sessions" ("ended_at");
CREATE INDEX "esclusa_esclusa_ended_sessions_status_ba5119d8" ON "esclusa_ended_sessions" ("status", "updated_at");

-- Table  esclusa_history
DROP TABLE IF EXISTS esclusa_history;
CREATE TABLE esclusa_history (
    seq INTEGER PRIMARY KEY,
    table_name TEXT NOT NULL,
    record_id TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    run TEXT,
    attempt INTEGER,
    reason TEXT,
    error TEXT
);
INSERT INTO esclusa_history VALUES(1,'parcels','1','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(2,'parcels','2','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(3,'parcels','3','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(4,'parcels','4','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(5,'parcels','5','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(6,'parcels','6','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(7,'parcels','7','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(8,'parcels','8','waiting','sending','2026-11-18 07:36:03.090924+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(9,'parcels','1','sending','sent','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(10,'parcels','2','sending','sent','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(11,'parcels','3','sending','sent','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(12,'parcels','4','sending','sent','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(13,'parcels','5','sending','sent','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(14,'parcels','6','sending','failed','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.098642+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(15,'parcels','7','sending','failed','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.100417+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(16,'parcels','8','sending','failed','2026-11-18 07:36:03.105493+00:00','vm-2428-bf9e','post.deliver:20261118T073603.045693Z-vm-2428-bf9e',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.100417+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(17,'dead_letters','01a1ed95-8b22-79fb-b2a1-97d4d6edbd5d','open','redriven','2026-11-18 07:36:03.818004+00:00','ana',NULL,NULL,'try again',NULL);
INSERT INTO esclusa_history VALUES(18,'parcels','8','failed','waiting','2026-11-18 07:36:03.818004+00:00','ana',NULL,NULL,'try again',NULL);
INSERT INTO esclusa_history VALUES(19,'parcels','8','waiting','sending','2026-11-18 07:36:03.832115+00:00','vm-2428-bf9e','post.deliver:20261118T073603.829590Z-vm-2428-bf9e',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(20,'parcels','8','sending','failed','2026-11-18 07:36:03.834242+00:00','vm-2428-bf9e','post.deliver:20261118T073603.829590Z-vm-2428-bf9e',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.833384+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(21,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.840509+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(22,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.843244+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(23,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.845937+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(24,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.848498+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(25,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.851233+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(26,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.853907+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(27,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.856425+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(28,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.858943+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(29,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.861853+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(30,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.864310+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(31,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.866906+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(32,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.869578+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(33,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.872143+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(34,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.874764+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(35,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.877589+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(36,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.880134+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(37,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.882880+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(38,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.885495+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(39,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.888047+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(40,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.890658+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(41,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.893177+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(42,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.896448+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(43,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','open','redriven','2026-11-18 07:36:03.899125+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(44,'dead_letters','01a1ed95-8b22-7269-80b9-d6629979ceea','redriven','open','2026-11-18 07:36:03.901787+00:00','ana',NULL,NULL,'x',NULL);
-- Triggers and indices on  esclusa_history
CREATE INDEX esclusa_history_by_record ON esclusa_history (table_name, record_id, seq);

-- Table  esclusa_migrations
DROP TABLE IF EXISTS esclusa_migrations;
CREATE TABLE esclusa_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL
);
INSERT INTO esclusa_migrations VALUES(1,'0001_engine.sql','5f0a793c45d0a9875126fbd450c432c62f7c91d71298cf5fa375130df2862da2','2026-11-18 07:36:02.909000+00:00');

-- Table  esclusa_outbox
DROP TABLE IF EXISTS esclusa_outbox;
CREATE TABLE "esclusa_outbox" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "topic" TEXT,
    "data" TEXT,
    "attributes" TEXT
);
-- Triggers and indices on  esclusa_outbox
CREATE INDEX "esclusa_esclusa_outbox_status_f2318455" ON "esclusa_outbox" ("status", "updated_at");

-- Table  esclusa_rates
DROP TABLE IF EXISTS esclusa_rates;
CREATE TABLE "esclusa_rates" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "stage" TEXT,
    "minute" TEXT,
    "worker" TEXT,
    "moved" INTEGER,
    "retried" INTEGER,
    "waited" INTEGER,
    "exhausted" INTEGER,
    "lost" INTEGER,
    "seconds" REAL,
    "histogram" TEXT
);
INSERT INTO esclusa_rates VALUES('post.send:2026-11-18T07%3A36%3A00%2B00%3A00:vm-2428-bf9e','kept',0,'2026-11-18 07:36:03.904432+00:00',0,NULL,NULL,'2026-11-18 07:36:03.904432+00:00','2026-11-18 07:36:03.904432+00:00','post.send','2026-11-18 07:36:00.000000+00:00','vm-2428-bf9e',5,0,0,4,0,0.00012404600420268252,'[9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]');
-- Triggers and indices on  esclusa_rates
CREATE INDEX "esclusa_esclusa_rates_minute_21f4a259" ON "esclusa_rates" ("minute");
CREATE INDEX "esclusa_esclusa_rates_stage_minute_67791cd6" ON "esclusa_rates" ("stage", "minute");
CREATE INDEX "esclusa_esclusa_rates_status_bf4c316d" ON "esclusa_rates" ("status", "updated_at");

-- Table  esclusa_wakes
DROP TABLE IF EXISTS esclusa_wakes;
CREATE TABLE esclusa_wakes (
    table_name TEXT PRIMARY KEY NOT NULL,
    count INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO esclusa_wakes VALUES('archive_exports',1);
INSERT INTO esclusa_wakes VALUES('dead_letters',27);
INSERT INTO esclusa_wakes VALUES('esclusa_alerts',1);
INSERT INTO esclusa_wakes VALUES('esclusa_audit',29);
INSERT INTO esclusa_wakes VALUES('esclusa_cycles',1);
INSERT INTO esclusa_wakes VALUES('esclusa_rates',1);
INSERT INTO esclusa_wakes VALUES('esclusa_workers',2);
INSERT INTO esclusa_wakes VALUES('parcels',6);
INSERT INTO esclusa_wakes VALUES('worker_runs',8);

-- Table  esclusa_workers
DROP TABLE IF EXISTS esclusa_workers;
CREATE TABLE "esclusa_workers" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "host" TEXT,
    "pid" INTEGER,
    "version" TEXT,
    "cycles" TEXT,
    "stages" TEXT,
    "started_at" TEXT
);
INSERT INTO esclusa_workers VALUES('vm-2428-bf9e','stopped',0,'2026-11-18 07:36:03.906216+00:00',0,NULL,NULL,'2026-11-18 07:36:03.035015+00:00','2026-11-18 07:36:03.906216+00:00','vm',2428,'0.1.0','["esclusa.end-dead-runs","esclusa.end-dead-workers","esclusa.prune","post.deliver","post.misfire","post.store-away"]','["esclusa.end-dead-runs","esclusa.end-dead-workers"]','2026-11-18 07:36:03.034405+00:00');
-- Triggers and indices on  esclusa_workers
CREATE INDEX "esclusa_esclusa_workers_claim_140bc025" ON "esclusa_workers" ("due_at", "id") WHERE "status" IN ('running');
CREATE INDEX "esclusa_esclusa_workers_status_2c05b92c" ON "esclusa_workers" ("status", "updated_at");

-- Table  parcels
DROP TABLE IF EXISTS parcels;
CREATE TABLE "parcels" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "number" INTEGER,
    "weight" INTEGER,
    "ordered_at" TEXT
);
INSERT INTO parcels VALUES('2','sent',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,NULL,'2026-11-18 07:36:03.015345+00:00','2026-11-18 07:36:03.105493+00:00',2,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('3','sent',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,NULL,'2026-11-18 07:36:03.015345+00:00','2026-11-18 07:36:03.105493+00:00',3,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('4','sent',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,NULL,'2026-11-18 07:36:03.015345+00:00','2026-11-18 07:36:03.105493+00:00',4,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('5','sent',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,NULL,'2026-11-18 07:36:03.015345+00:00','2026-11-18 07:36:03.105493+00:00',5,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('6','failed',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.098642+00:00","attempt":1}','2026-11-18 07:36:03.017356+00:00','2026-11-18 07:36:03.105493+00:00',6,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('7','failed',1,'2026-11-18 07:36:03.105493+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.100417+00:00","attempt":1}','2026-11-18 07:36:03.017356+00:00','2026-11-18 07:36:03.105493+00:00',7,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('8','failed',1,'2026-11-18 07:36:03.834242+00:00',3,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T07:36:03.833384+00:00","attempt":1}','2026-11-18 07:36:03.017356+00:00','2026-11-18 07:36:03.834242+00:00',8,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('9','waiting',0,'2026-11-18 07:36:03.907593+00:00',0,NULL,NULL,'2026-11-18 07:36:03.907593+00:00','2026-11-18 07:36:03.907593+00:00',9,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('10','waiting',0,'2026-11-18 07:36:03.907593+00:00',0,NULL,NULL,'2026-11-18 07:36:03.907593+00:00','2026-11-18 07:36:03.907593+00:00',10,1,'2026-11-01 12:00:00.000000+00:00');
-- Triggers and indices on  parcels
CREATE INDEX "esclusa_parcels_claim_87753bbe" ON "parcels" ("due_at", "id") WHERE "status" IN ('sending', 'waiting');
CREATE INDEX "esclusa_parcels_status_7fd9bdc1" ON "parcels" ("status", "updated_at");

-- Table  worker_runs
DROP TABLE IF EXISTS worker_runs;
CREATE TABLE "worker_runs" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "cycle" TEXT,
    "slot" TEXT,
    "worker" TEXT,
    "started_at" TEXT,
    "finished_at" TEXT,
    "duration_ms" INTEGER,
    "counters" TEXT,
    "message" TEXT
);
INSERT INTO worker_runs VALUES('post.deliver:20261118T073603.045693Z-vm-2428-bf9e','partial',0,'2026-11-18 07:36:03.142111+00:00',0,NULL,NULL,'2026-11-18 07:36:03.067298+00:00','2026-11-18 07:36:03.142111+00:00','post.deliver','20261118T073603.045693Z-vm-2428-bf9e','vm-2428-bf9e','2026-11-18 07:36:03.045693+00:00','2026-11-18 07:36:03.130737+00:00',85,'{"taken":8,"sent":5,"failed":3}','{"code": "records_exhausted", "state": "failed"}');
INSERT INTO worker_runs VALUES('post.store-away:20261118T073603.173089Z-vm-2428-bf9e','ok',0,'2026-11-18 07:36:03.194162+00:00',0,NULL,NULL,'2026-11-18 07:36:03.177874+00:00','2026-11-18 07:36:03.194162+00:00','post.store-away','20261118T073603.173089Z-vm-2428-bf9e','vm-2428-bf9e','2026-11-18 07:36:03.173089+00:00','2026-11-18 07:36:03.194021+00:00',21,'{"archived":1}',NULL);
INSERT INTO worker_runs VALUES('post.misfire:20261118T073603.195680Z-vm-2428-bf9e','error',0,'2026-11-18 07:36:03.771354+00:00',0,NULL,NULL,'2026-11-18 07:36:03.196116+00:00','2026-11-18 07:36:03.771354+00:00','post.misfire','20261118T073603.195680Z-vm-2428-bf9e','vm-2428-bf9e','2026-11-18 07:36:03.195680+00:00','2026-11-18 07:36:03.771011+00:00',575,'{}','RuntimeError: no fuel');
INSERT INTO worker_runs VALUES('post.deliver:20261118T073603.829590Z-vm-2428-bf9e','partial',0,'2026-11-18 07:36:03.837524+00:00',0,NULL,NULL,'2026-11-18 07:36:03.830153+00:00','2026-11-18 07:36:03.837524+00:00','post.deliver','20261118T073603.829590Z-vm-2428-bf9e','vm-2428-bf9e','2026-11-18 07:36:03.829590+00:00','2026-11-18 07:36:03.837339+00:00',8,'{"taken":1,"failed":1}','{"code": "records_exhausted", "state": "failed"}');
-- Triggers and indices on  worker_runs
CREATE INDEX "esclusa_worker_runs_claim_f7765683" ON "worker_runs" ("due_at", "id") WHERE "status" IN ('running');
CREATE INDEX "esclusa_worker_runs_cycle_started_at_f6ef4fd6" ON "worker_runs" ("cycle", "started_at" DESC);
CREATE INDEX "esclusa_worker_runs_started_at_6d4c5f26" ON "worker_runs" ("started_at" DESC);
CREATE INDEX "esclusa_worker_runs_status_caa233a6" ON "worker_runs" ("status", "updated_at");

COMMIT TRANSACTION;
