-- SQLite dump (by APSW 3.54.1.0)
-- SQLite version 3.54.1
-- Date: Wed Nov 18 10:11:25 2026
-- Tables like: (All)
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
INSERT INTO archive_exports VALUES('parcels:2026-11:1','filling',0,'2026-11-18 10:11:25.514630+00:00',0,NULL,NULL,'2026-11-18 10:11:25.514630+00:00','2026-11-18 10:11:25.514630+00:00','parcels','2026-11',1,'parcels/year=2026/month=11/part-00001.parquet',0,0,'',NULL,NULL,NULL);
INSERT INTO archive_exports VALUES('routes:2026-11:1','filling',0,'2026-11-18 10:11:25.709602+00:00',0,NULL,NULL,'2026-11-18 10:11:25.709602+00:00','2026-11-18 10:11:25.709602+00:00','routes','2026-11',1,'routes/year=2026/month=11/part-00001.parquet',0,0,'',NULL,NULL,NULL);
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
INSERT INTO archive_parcels VALUES('1','sent',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,NULL,'2026-11-18 10:11:25.492582+00:00','2026-11-18 10:11:25.506252+00:00',1,1,'2026-11-01 12:00:00.000000+00:00','2026-11-18 10:11:25.515809+00:00','parcels:2026-11:1');
-- Triggers and indices on  archive_parcels
CREATE INDEX "esclusa_archive_parcels_archived_at_0d2eb261" ON "archive_parcels" (archived_at);
CREATE INDEX "esclusa_archive_parcels_export_7d2dc969" ON "archive_parcels" (export_id, "id");

-- Table  archive_routes
DROP TABLE IF EXISTS archive_routes;
CREATE TABLE "archive_routes" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT,
    "attempts" INTEGER,
    "due_at" TEXT,
    "fence" INTEGER,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT,
    "updated_at" TEXT,
    "name" TEXT,
    "closed_at" TEXT,
    archived_at TEXT NOT NULL,
    export_id TEXT
);
INSERT INTO archive_routes VALUES('fin%3A%209','open',0,'2026-11-18 10:11:25.688952+00:00',0,NULL,NULL,'2026-11-18 10:11:25.688952+00:00','2026-11-18 10:11:25.688952+00:00','fin: 9','2026-11-01 12:00:00.000000+00:00','2026-11-18 10:11:25.710898+00:00','routes:2026-11:1');
-- Triggers and indices on  archive_routes
CREATE INDEX "esclusa_archive_routes_archived_at_9d2f9fae" ON "archive_routes" (archived_at);
CREATE INDEX "esclusa_archive_routes_export_f22d32f9" ON "archive_routes" (export_id, "id");

-- Table  archive_stops
DROP TABLE IF EXISTS archive_stops;
CREATE TABLE "archive_stops" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT,
    "attempts" INTEGER,
    "due_at" TEXT,
    "fence" INTEGER,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT,
    "updated_at" TEXT,
    "route_id" TEXT,
    "place" TEXT,
    "weight" INTEGER,
    archived_at TEXT NOT NULL,
    export_id TEXT
);
-- Triggers and indices on  archive_stops
CREATE INDEX "esclusa_archive_stops_archived_at_783abf35" ON "archive_stops" (archived_at);
CREATE INDEX "esclusa_archive_stops_export_6224f252" ON "archive_stops" (export_id, "id");

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
INSERT INTO dead_letters VALUES('01a1ee23-cac3-7ec6-8c32-307b2e9cc91d','open',1,'2026-11-18 10:11:25.506252+00:00',0,NULL,NULL,'2026-11-18 10:11:25.506252+00:00','2026-11-18 10:11:25.506252+00:00','parcels','6','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"6","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.502754Z","last_error":null,"created_at":"2026-11-18T10:11:25.494008Z","updated_at":"2026-11-18T10:11:25.502754Z","number":6,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.504449+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cac3-756c-9eef-fec31370c650','open',0,'2026-11-18 10:11:25.683210+00:00',24,NULL,NULL,'2026-11-18 10:11:25.506252+00:00','2026-11-18 10:11:25.683210+00:00','parcels','7','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"7","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.502754Z","last_error":null,"created_at":"2026-11-18T10:11:25.494008Z","updated_at":"2026-11-18T10:11:25.502754Z","number":7,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.505917+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cac3-70db-bc2b-96890aef692e','redriven',1,'2026-11-18 10:11:25.596878+00:00',1,NULL,NULL,'2026-11-18 10:11:25.506252+00:00','2026-11-18 10:11:25.596878+00:00','parcels','8','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"8","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.502754Z","last_error":null,"created_at":"2026-11-18T10:11:25.494008Z","updated_at":"2026-11-18T10:11:25.502754Z","number":8,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.505917+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cb21-7884-a837-f772bcfac2ca','open',1,'2026-11-18 10:11:25.601409+00:00',0,NULL,NULL,'2026-11-18 10:11:25.601409+00:00','2026-11-18 10:11:25.601409+00:00','parcels','8','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"8","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.599970Z","last_error":{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.505917+00:00","attempt":1},"created_at":"2026-11-18T10:11:25.494008Z","updated_at":"2026-11-18T10:11:25.599970Z","number":8,"weight":200,"ordered_at":"2026-11-01T12:00:00Z","error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.600998+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cb87-7e4b-b1eb-6fb2bdef8018','open',1,'2026-11-18 10:11:25.702832+00:00',0,NULL,NULL,'2026-11-18 10:11:25.702832+00:00','2026-11-18 10:11:25.702832+00:00','stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.699807Z","last_error":null,"created_at":"2026-11-18T10:11:25.690728Z","updated_at":"2026-11-18T10:11:25.699807Z","route_id":"%C3%91u%C3%B1oa%20%7E%20100%20%25","place":"a=b","weight":200,"error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.701229+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cb87-7231-aa06-bb5193d27f47','open',1,'2026-11-18 10:11:25.702832+00:00',0,NULL,NULL,'2026-11-18 10:11:25.702832+00:00','2026-11-18 10:11:25.702832+00:00','stops','norte:a%3Db','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"norte:a%3Db","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.699807Z","last_error":null,"created_at":"2026-11-18T10:11:25.690728Z","updated_at":"2026-11-18T10:11:25.699807Z","route_id":"norte","place":"a=b","weight":200,"error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.701229+00:00"}');
INSERT INTO dead_letters VALUES('01a1ee23-cb87-781d-8c17-643e09ca7ca0','open',1,'2026-11-18 10:11:25.702832+00:00',0,NULL,NULL,'2026-11-18 10:11:25.702832+00:00','2026-11-18 10:11:25.702832+00:00','stops','sur%253A%25201%252F2:a%3Db','waiting','too_heavy','too heavy','{"code": "permanent"}','{"id":"sur%253A%25201%252F2:a%3Db","status":"sending","attempts":1,"due_at":"2026-11-18T10:12:25.699807Z","last_error":null,"created_at":"2026-11-18T10:11:25.690728Z","updated_at":"2026-11-18T10:11:25.699807Z","route_id":"sur%3A%201%2F2","place":"a=b","weight":200,"error_type":"too_heavy","error_message":"too heavy","timestamp":"2026-11-18T10:11:25.702301+00:00"}');
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
INSERT INTO esclusa_alerts VALUES('cycle_failed:post.misfire:1','raised',0,'2026-11-18 10:11:25.593962+00:00',0,NULL,NULL,'2026-11-18 10:11:25.593962+00:00','2026-11-18 10:11:25.593962+00:00','cycle_failed','post.misfire',1,'{"code": "cycle_failed", "cycle": "post.misfire", "why": "RuntimeError: no fuel"}','2026-11-18 10:11:25.593207+00:00',NULL,'2026-11-18 10:11:25.593207+00:00','vm-13760-00c8','{"run":"post.misfire:20261118T101125.518036Z-vm-13760-00c8"}');
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
INSERT INTO esclusa_audit VALUES('01a1ee23-cac7-7334-b00f-3d985ae95b0b','kept',0,'2026-11-18 10:11:25.510837+00:00',0,NULL,NULL,'2026-11-18 10:11:25.510837+00:00','2026-11-18 10:11:25.510837+00:00','ana','run','post.deliver','{}',8,'','2026-11-18 10:11:25.509371+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cacd-7974-8172-de9e165de06c','kept',0,'2026-11-18 10:11:25.517568+00:00',0,NULL,NULL,'2026-11-18 10:11:25.517568+00:00','2026-11-18 10:11:25.517568+00:00','ana','run','post.store-away','{}',0,'','2026-11-18 10:11:25.516826+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb1b-7cd5-aca6-dfcb557c5220','kept',0,'2026-11-18 10:11:25.595243+00:00',0,NULL,NULL,'2026-11-18 10:11:25.595243+00:00','2026-11-18 10:11:25.595243+00:00','ana','run','post.misfire','{}',0,'','2026-11-18 10:11:25.595142+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb1e-723c-ae16-570540de5b49','kept',0,'2026-11-18 10:11:25.598028+00:00',0,NULL,NULL,'2026-11-18 10:11:25.598028+00:00','2026-11-18 10:11:25.598028+00:00','ana','redrive','dead_letters','{"record_id":"8","status":"open"}',1,'try again','2026-11-18 10:11:25.597947+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb24-7c6e-9914-7748c06b8bc8','kept',0,'2026-11-18 10:11:25.604096+00:00',0,NULL,NULL,'2026-11-18 10:11:25.604096+00:00','2026-11-18 10:11:25.604096+00:00','ana','run','post.deliver','{}',1,'','2026-11-18 10:11:25.603407+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb26-70f6-a812-a29231a19f1c','kept',0,'2026-11-18 10:11:25.606699+00:00',0,NULL,NULL,'2026-11-18 10:11:25.606699+00:00','2026-11-18 10:11:25.606699+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.606603+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb29-7f1b-b4c7-7dfb77543aef','kept',0,'2026-11-18 10:11:25.609091+00:00',0,NULL,NULL,'2026-11-18 10:11:25.609091+00:00','2026-11-18 10:11:25.609091+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.608994+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb2d-7df3-8259-07fb590b6060','kept',0,'2026-11-18 10:11:25.613734+00:00',0,NULL,NULL,'2026-11-18 10:11:25.613734+00:00','2026-11-18 10:11:25.613734+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.613640+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb35-77a9-a5fa-2581aceafe96','kept',0,'2026-11-18 10:11:25.621639+00:00',0,NULL,NULL,'2026-11-18 10:11:25.621639+00:00','2026-11-18 10:11:25.621639+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.621561+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb3b-701e-bef6-c1baa607262c','kept',0,'2026-11-18 10:11:25.627575+00:00',0,NULL,NULL,'2026-11-18 10:11:25.627575+00:00','2026-11-18 10:11:25.627575+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.627494+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb3e-7cc9-ab51-3f880fca49b6','kept',0,'2026-11-18 10:11:25.630948+00:00',0,NULL,NULL,'2026-11-18 10:11:25.630948+00:00','2026-11-18 10:11:25.630948+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.630840+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb41-7c57-bd7c-ae1e18a411d6','kept',0,'2026-11-18 10:11:25.633951+00:00',0,NULL,NULL,'2026-11-18 10:11:25.633951+00:00','2026-11-18 10:11:25.633951+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.633862+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb43-70da-aa16-9d11718e2476','kept',0,'2026-11-18 10:11:25.635822+00:00',0,NULL,NULL,'2026-11-18 10:11:25.635822+00:00','2026-11-18 10:11:25.635822+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.635750+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb46-764d-867d-c8ba113153a8','kept',0,'2026-11-18 10:11:25.638600+00:00',0,NULL,NULL,'2026-11-18 10:11:25.638600+00:00','2026-11-18 10:11:25.638600+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.638504+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb48-7d9e-ac5f-e1256d849b45','kept',0,'2026-11-18 10:11:25.640763+00:00',0,NULL,NULL,'2026-11-18 10:11:25.640763+00:00','2026-11-18 10:11:25.640763+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.640678+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb4b-7a4d-a9ee-939e6c4b206e','kept',0,'2026-11-18 10:11:25.643388+00:00',0,NULL,NULL,'2026-11-18 10:11:25.643388+00:00','2026-11-18 10:11:25.643388+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.643293+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb4e-748e-b77b-03b9dc618491','kept',0,'2026-11-18 10:11:25.646315+00:00',0,NULL,NULL,'2026-11-18 10:11:25.646315+00:00','2026-11-18 10:11:25.646315+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.646240+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb51-7872-9097-7e637cf3ddbd','kept',0,'2026-11-18 10:11:25.649905+00:00',0,NULL,NULL,'2026-11-18 10:11:25.649905+00:00','2026-11-18 10:11:25.649905+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.649819+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb5b-7cfd-bb2d-ce81f52c853e','kept',0,'2026-11-18 10:11:25.659875+00:00',0,NULL,NULL,'2026-11-18 10:11:25.659875+00:00','2026-11-18 10:11:25.659875+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.659578+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb5d-7a78-a6ba-109208aff366','kept',0,'2026-11-18 10:11:25.661861+00:00',0,NULL,NULL,'2026-11-18 10:11:25.661861+00:00','2026-11-18 10:11:25.661861+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.661787+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb60-7e1b-a47d-81e6a60fe256','kept',0,'2026-11-18 10:11:25.664162+00:00',0,NULL,NULL,'2026-11-18 10:11:25.664162+00:00','2026-11-18 10:11:25.664162+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.664069+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb64-7188-88bf-47719db23f2f','kept',0,'2026-11-18 10:11:25.668927+00:00',0,NULL,NULL,'2026-11-18 10:11:25.668927+00:00','2026-11-18 10:11:25.668927+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.668841+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb68-72db-a4aa-a109b2532f8c','kept',0,'2026-11-18 10:11:25.672374+00:00',0,NULL,NULL,'2026-11-18 10:11:25.672374+00:00','2026-11-18 10:11:25.672374+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.672294+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb6a-7381-9563-0e2aced644b6','kept',0,'2026-11-18 10:11:25.674282+00:00',0,NULL,NULL,'2026-11-18 10:11:25.674282+00:00','2026-11-18 10:11:25.674282+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.674203+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb6c-7ff2-a632-24a5ba5054cc','kept',0,'2026-11-18 10:11:25.676278+00:00',0,NULL,NULL,'2026-11-18 10:11:25.676278+00:00','2026-11-18 10:11:25.676278+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.676184+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb6e-75ce-b003-cc59a1bcb6ee','kept',0,'2026-11-18 10:11:25.678258+00:00',0,NULL,NULL,'2026-11-18 10:11:25.678258+00:00','2026-11-18 10:11:25.678258+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.678185+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb70-76e4-9075-274ed90f0649','kept',0,'2026-11-18 10:11:25.680048+00:00',0,NULL,NULL,'2026-11-18 10:11:25.680048+00:00','2026-11-18 10:11:25.680048+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.679973+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb72-7383-8f71-72fd90e3a910','kept',0,'2026-11-18 10:11:25.682025+00:00',0,NULL,NULL,'2026-11-18 10:11:25.682025+00:00','2026-11-18 10:11:25.682025+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.681876+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb73-7f7a-b88b-dadf55063e65','kept',0,'2026-11-18 10:11:25.683818+00:00',0,NULL,NULL,'2026-11-18 10:11:25.683818+00:00','2026-11-18 10:11:25.683818+00:00','ana','move','dead_letters','{"record_id":"7"}',1,'x','2026-11-18 10:11:25.683743+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb8a-7fb0-ab52-1b314d2c89df','kept',0,'2026-11-18 10:11:25.706160+00:00',0,NULL,NULL,'2026-11-18 10:11:25.706160+00:00','2026-11-18 10:11:25.706160+00:00','ana','run','post.travel','{}',12,'','2026-11-18 10:11:25.706022+00:00');
INSERT INTO esclusa_audit VALUES('01a1ee23-cb94-74ae-938d-71217f344779','kept',0,'2026-11-18 10:11:25.716885+00:00',0,NULL,NULL,'2026-11-18 10:11:25.716885+00:00','2026-11-18 10:11:25.716885+00:00','ana','run','post.store-routes','{}',0,'','2026-11-18 10:11:25.716743+00:00');
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
INSERT INTO esclusa_calls VALUES('ana:order%207%2F8','kept',0,'2026-11-18 10:11:25.696518+00:00',0,NULL,NULL,'2026-11-18 10:11:25.696518+00:00','2026-11-18 10:11:25.696518+00:00','ana','order 7/8','f','2026-11-01 12:00:00.000000+00:00',200,'','');
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
INSERT INTO esclusa_cycles VALUES('post.travel','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','post.travel','every 1h');
INSERT INTO esclusa_cycles VALUES('post.store-routes','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','post.store-routes','every 1d');
INSERT INTO esclusa_cycles VALUES('post.deliver','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','post.deliver','every 1h');
INSERT INTO esclusa_cycles VALUES('post.store-away','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','post.store-away','every 1d');
INSERT INTO esclusa_cycles VALUES('post.misfire','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','post.misfire','every 1d');
INSERT INTO esclusa_cycles VALUES('esclusa.end-dead-runs','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','esclusa.end-dead-runs','every 10s');
INSERT INTO esclusa_cycles VALUES('esclusa.end-dead-workers','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','esclusa.end-dead-workers','every 10s');
INSERT INTO esclusa_cycles VALUES('esclusa.prune','idle',0,'2026-11-18 10:11:25.494819+00:00',0,NULL,NULL,'2026-11-18 10:11:25.495476+00:00','2026-11-18 10:11:25.495476+00:00','esclusa.prune','every 1h');
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
INSERT INTO esclusa_history VALUES(1,'parcels','1','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(2,'parcels','2','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(3,'parcels','3','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(4,'parcels','4','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(5,'parcels','5','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(6,'parcels','6','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(7,'parcels','7','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(8,'parcels','8','waiting','sending','2026-11-18 10:11:25.502754+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(9,'parcels','1','sending','sent','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(10,'parcels','2','sending','sent','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(11,'parcels','3','sending','sent','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(12,'parcels','4','sending','sent','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(13,'parcels','5','sending','sent','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(14,'parcels','6','sending','failed','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.504449+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(15,'parcels','7','sending','failed','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.505917+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(16,'parcels','8','sending','failed','2026-11-18 10:11:25.506252+00:00','vm-13760-00c8','post.deliver:20261118T101125.499113Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.505917+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(17,'dead_letters','01a1ee23-cac3-70db-bc2b-96890aef692e','open','redriven','2026-11-18 10:11:25.596878+00:00','ana',NULL,NULL,'try again',NULL);
INSERT INTO esclusa_history VALUES(18,'parcels','8','failed','waiting','2026-11-18 10:11:25.596878+00:00','ana',NULL,NULL,'try again',NULL);
INSERT INTO esclusa_history VALUES(19,'parcels','8','waiting','sending','2026-11-18 10:11:25.599970+00:00','vm-13760-00c8','post.deliver:20261118T101125.598496Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(20,'parcels','8','sending','failed','2026-11-18 10:11:25.601409+00:00','vm-13760-00c8','post.deliver:20261118T101125.598496Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.600998+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(21,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.605987+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(22,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.608190+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(23,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.610741+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(24,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.618254+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(25,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.626229+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(26,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.630249+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(27,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.632192+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(28,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.635193+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(29,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.637119+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(30,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.639833+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(31,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.642074+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(32,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.645623+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(33,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.648552+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(34,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.658409+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(35,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.661206+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(36,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.663362+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(37,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.667254+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(38,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.671728+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(39,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.673623+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(40,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.675495+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(41,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.677649+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(42,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.679384+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(43,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','open','redriven','2026-11-18 10:11:25.681343+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(44,'dead_letters','01a1ee23-cac3-756c-9eef-fec31370c650','redriven','open','2026-11-18 10:11:25.683210+00:00','ana',NULL,NULL,'x',NULL);
INSERT INTO esclusa_history VALUES(45,'stops','norte:stop-1','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(46,'stops','norte:Av.%20Per%C3%BA%20%2312','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(47,'stops','norte:a%3Db','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(48,'stops','norte:.','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(49,'stops','sur%253A%25201%252F2:stop-1','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(50,'stops','sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(51,'stops','sur%253A%25201%252F2:a%3Db','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(52,'stops','sur%253A%25201%252F2:.','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(53,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(54,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(55,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(56,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.','waiting','sending','2026-11-18 10:11:25.699807+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(57,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(58,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(59,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','sending','failed','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.701229+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(60,'stops','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(61,'stops','norte:.','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(62,'stops','norte:Av.%20Per%C3%BA%20%2312','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(63,'stops','norte:a%3Db','sending','failed','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.701229+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(64,'stops','norte:stop-1','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(65,'stops','sur%253A%25201%252F2:.','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(66,'stops','sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
INSERT INTO esclusa_history VALUES(67,'stops','sur%253A%25201%252F2:a%3Db','sending','failed','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,'{"code": "permanent"}','{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.702301+00:00","attempt":1}');
INSERT INTO esclusa_history VALUES(68,'stops','sur%253A%25201%252F2:stop-1','sending','sent','2026-11-18 10:11:25.702832+00:00','vm-13760-00c8','post.travel:20261118T101125.698661Z-vm-13760-00c8',1,NULL,NULL);
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
INSERT INTO esclusa_migrations VALUES(1,'0001_engine.sql','5f0a793c45d0a9875126fbd450c432c62f7c91d71298cf5fa375130df2862da2','2026-11-18 10:11:25.484000+00:00');

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
INSERT INTO esclusa_rates VALUES('post.send:2026-11-18T10%3A11%3A00%2B00%3A00:vm-13760-00c8','kept',0,'2026-11-18 10:11:25.685149+00:00',0,NULL,NULL,'2026-11-18 10:11:25.685149+00:00','2026-11-18 10:11:25.685149+00:00','post.send','2026-11-18 10:11:00.000000+00:00','vm-13760-00c8',5,0,0,4,0,0.00010606000432744622,'[9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]');
INSERT INTO esclusa_rates VALUES('post.reach:2026-11-18T10%3A11%3A00%2B00%3A00:vm-13760-00c8','kept',0,'2026-11-18 10:11:25.717846+00:00',0,NULL,NULL,'2026-11-18 10:11:25.717846+00:00','2026-11-18 10:11:25.717846+00:00','post.reach','2026-11-18 10:11:00.000000+00:00','vm-13760-00c8',9,0,0,3,0,0.00018881801224779338,'[12,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]');
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
INSERT INTO esclusa_wakes VALUES('archive_exports',2);
INSERT INTO esclusa_wakes VALUES('dead_letters',28);
INSERT INTO esclusa_wakes VALUES('esclusa_alerts',1);
INSERT INTO esclusa_wakes VALUES('esclusa_audit',31);
INSERT INTO esclusa_wakes VALUES('esclusa_calls',1);
INSERT INTO esclusa_wakes VALUES('esclusa_cycles',1);
INSERT INTO esclusa_wakes VALUES('esclusa_rates',2);
INSERT INTO esclusa_wakes VALUES('esclusa_workers',2);
INSERT INTO esclusa_wakes VALUES('parcels',6);
INSERT INTO esclusa_wakes VALUES('remarks',2);
INSERT INTO esclusa_wakes VALUES('routes',1);
INSERT INTO esclusa_wakes VALUES('stops',2);
INSERT INTO esclusa_wakes VALUES('visits',1);
INSERT INTO esclusa_wakes VALUES('worker_runs',12);

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
INSERT INTO esclusa_workers VALUES('vm-13760-00c8','stopped',0,'2026-11-18 10:11:25.686496+00:00',0,NULL,NULL,'2026-11-18 10:11:25.498116+00:00','2026-11-18 10:11:25.686496+00:00','vm',13760,'0.1.0','["esclusa.end-dead-runs","esclusa.end-dead-workers","esclusa.prune","post.deliver","post.misfire","post.store-away","post.store-routes","post.travel"]','["esclusa.end-dead-runs","esclusa.end-dead-workers"]','2026-11-18 10:11:25.497471+00:00');
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
INSERT INTO parcels VALUES('2','sent',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,NULL,'2026-11-18 10:11:25.492582+00:00','2026-11-18 10:11:25.506252+00:00',2,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('3','sent',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,NULL,'2026-11-18 10:11:25.492582+00:00','2026-11-18 10:11:25.506252+00:00',3,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('4','sent',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,NULL,'2026-11-18 10:11:25.492582+00:00','2026-11-18 10:11:25.506252+00:00',4,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('5','sent',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,NULL,'2026-11-18 10:11:25.492582+00:00','2026-11-18 10:11:25.506252+00:00',5,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('6','failed',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.504449+00:00","attempt":1}','2026-11-18 10:11:25.494008+00:00','2026-11-18 10:11:25.506252+00:00',6,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('7','failed',1,'2026-11-18 10:11:25.506252+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.505917+00:00","attempt":1}','2026-11-18 10:11:25.494008+00:00','2026-11-18 10:11:25.506252+00:00',7,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('8','failed',1,'2026-11-18 10:11:25.601409+00:00',3,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.600998+00:00","attempt":1}','2026-11-18 10:11:25.494008+00:00','2026-11-18 10:11:25.601409+00:00',8,200,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('9','waiting',0,'2026-11-18 10:11:25.687568+00:00',0,NULL,NULL,'2026-11-18 10:11:25.687568+00:00','2026-11-18 10:11:25.687568+00:00',9,1,'2026-11-01 12:00:00.000000+00:00');
INSERT INTO parcels VALUES('10','waiting',0,'2026-11-18 10:11:25.687568+00:00',0,NULL,NULL,'2026-11-18 10:11:25.687568+00:00','2026-11-18 10:11:25.687568+00:00',10,1,'2026-11-01 12:00:00.000000+00:00');
-- Triggers and indices on  parcels
CREATE INDEX "esclusa_parcels_claim_87753bbe" ON "parcels" ("due_at", "id") WHERE "status" IN ('sending', 'waiting');
CREATE INDEX "esclusa_parcels_status_7fd9bdc1" ON "parcels" ("status", "updated_at");

-- Table  remarks
DROP TABLE IF EXISTS remarks;
CREATE TABLE "remarks" (
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
    "about" TEXT,
    "route_id" TEXT
);
INSERT INTO remarks VALUES('0','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',0,'norte:stop-1','norte');
INSERT INTO remarks VALUES('1','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',1,'norte:Av.%20Per%C3%BA%20%2312','norte');
INSERT INTO remarks VALUES('2','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',2,'norte:a%3Db','norte');
INSERT INTO remarks VALUES('3','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',3,'norte:.','norte');
INSERT INTO remarks VALUES('4','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',4,'sur%253A%25201%252F2:stop-1','sur%3A%201%2F2');
INSERT INTO remarks VALUES('5','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',5,'sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312','sur%3A%201%2F2');
INSERT INTO remarks VALUES('6','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',6,'sur%253A%25201%252F2:a%3Db','sur%3A%201%2F2');
INSERT INTO remarks VALUES('7','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',7,'sur%253A%25201%252F2:.','sur%3A%201%2F2');
INSERT INTO remarks VALUES('8','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',8,'%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1','%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO remarks VALUES('9','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',9,'%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312','%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO remarks VALUES('10','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',10,'%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO remarks VALUES('11','noted',0,'2026-11-18 10:11:25.694232+00:00',0,NULL,NULL,'2026-11-18 10:11:25.694232+00:00','2026-11-18 10:11:25.694232+00:00',11,'%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.','%C3%91u%C3%B1oa%20%7E%20100%20%25');
INSERT INTO remarks VALUES('98','noted',0,'2026-11-18 10:11:25.695470+00:00',0,NULL,NULL,'2026-11-18 10:11:25.695470+00:00','2026-11-18 10:11:25.695470+00:00',98,NULL,'Camino%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3~1430544cc5eec2533fcf9c06b561fa0fd45c324dda179d7f7ef630f8ea968558');
INSERT INTO remarks VALUES('99','noted',0,'2026-11-18 10:11:25.695470+00:00',0,NULL,NULL,'2026-11-18 10:11:25.695470+00:00','2026-11-18 10:11:25.695470+00:00',99,NULL,NULL);
-- Triggers and indices on  remarks
CREATE INDEX "esclusa_remarks_status_ef43a861" ON "remarks" ("status", "updated_at");

-- Table  routes
DROP TABLE IF EXISTS routes;
CREATE TABLE "routes" (
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
    "closed_at" TEXT
);
INSERT INTO routes VALUES('norte','open',0,'2026-11-18 10:11:25.688952+00:00',0,NULL,NULL,'2026-11-18 10:11:25.688952+00:00','2026-11-18 10:11:25.688952+00:00','norte','2026-11-01 12:00:00.000000+00:00');
INSERT INTO routes VALUES('sur%3A%201%2F2','open',0,'2026-11-18 10:11:25.688952+00:00',0,NULL,NULL,'2026-11-18 10:11:25.688952+00:00','2026-11-18 10:11:25.688952+00:00','sur: 1/2','2026-11-01 12:00:00.000000+00:00');
INSERT INTO routes VALUES('%C3%91u%C3%B1oa%20%7E%20100%20%25','open',0,'2026-11-18 10:11:25.688952+00:00',0,NULL,NULL,'2026-11-18 10:11:25.688952+00:00','2026-11-18 10:11:25.688952+00:00','Ñuñoa ~ 100 %','2026-11-01 12:00:00.000000+00:00');
INSERT INTO routes VALUES('Camino%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3%A1%20%C3%A9%20%C3~1430544cc5eec2533fcf9c06b561fa0fd45c324dda179d7f7ef630f8ea968558','open',0,'2026-11-18 10:11:25.688952+00:00',0,NULL,NULL,'2026-11-18 10:11:25.688952+00:00','2026-11-18 10:11:25.688952+00:00','Camino á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é á é ','2026-11-01 12:00:00.000000+00:00');
-- Triggers and indices on  routes
CREATE INDEX "esclusa_routes_status_100f6770" ON "routes" ("status", "updated_at");

-- Table  stops
DROP TABLE IF EXISTS stops;
CREATE TABLE "stops" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "route_id" TEXT,
    "place" TEXT,
    "weight" INTEGER
);
INSERT INTO stops VALUES('norte:stop-1','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','norte','stop-1',1);
INSERT INTO stops VALUES('norte:Av.%20Per%C3%BA%20%2312','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','norte','Av. Perú #12',1);
INSERT INTO stops VALUES('norte:a%3Db','failed',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.701229+00:00","attempt":1}','2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','norte','a=b',200);
INSERT INTO stops VALUES('norte:.','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','norte','.',1);
INSERT INTO stops VALUES('sur%253A%25201%252F2:stop-1','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','sur%3A%201%2F2','stop-1',1);
INSERT INTO stops VALUES('sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','sur%3A%201%2F2','Av. Perú #12',1);
INSERT INTO stops VALUES('sur%253A%25201%252F2:a%3Db','failed',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.702301+00:00","attempt":1}','2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','sur%3A%201%2F2','a=b',200);
INSERT INTO stops VALUES('sur%253A%25201%252F2:.','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','sur%3A%201%2F2','.',1);
INSERT INTO stops VALUES('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','%C3%91u%C3%B1oa%20%7E%20100%20%25','stop-1',1);
INSERT INTO stops VALUES('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','%C3%91u%C3%B1oa%20%7E%20100%20%25','Av. Perú #12',1);
INSERT INTO stops VALUES('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','failed',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,'{"message":"too heavy","type":"too_heavy","timestamp":"2026-11-18T10:11:25.701229+00:00","attempt":1}','2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','%C3%91u%C3%B1oa%20%7E%20100%20%25','a=b',200);
INSERT INTO stops VALUES('%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.','sent',1,'2026-11-18 10:11:25.702832+00:00',1,NULL,NULL,'2026-11-18 10:11:25.690728+00:00','2026-11-18 10:11:25.702832+00:00','%C3%91u%C3%B1oa%20%7E%20100%20%25','.',1);
-- Triggers and indices on  stops
CREATE INDEX "esclusa_stops_claim_ed57ede2" ON "stops" ("due_at", "id") WHERE "status" IN ('sending', 'waiting');
CREATE INDEX "esclusa_stops_status_9153a449" ON "stops" ("status", "updated_at");

-- Table  visits
DROP TABLE IF EXISTS visits;
CREATE TABLE "visits" (
    "id" TEXT PRIMARY KEY NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "due_at" TEXT NOT NULL,
    "fence" INTEGER NOT NULL,
    "leased_by" TEXT,
    "last_error" TEXT,
    "created_at" TEXT NOT NULL,
    "updated_at" TEXT NOT NULL,
    "stop_id" TEXT,
    "day" TEXT,
    "route_id" TEXT
);
INSERT INTO visits VALUES('norte%3Astop-1:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','norte:stop-1','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('norte%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','norte:Av.%20Per%C3%BA%20%2312','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('norte%3Aa%253Db:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','norte:a%3Db','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('norte%3A.:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','norte:.','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('sur%25253A%2525201%25252F2%3Astop-1:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','sur%253A%25201%252F2:stop-1','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('sur%25253A%2525201%25252F2%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','sur%253A%25201%252F2:Av.%20Per%C3%BA%20%2312','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('sur%25253A%2525201%25252F2%3Aa%253Db:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','sur%253A%25201%252F2:a%3Db','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('sur%25253A%2525201%25252F2%3A.:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','sur%253A%25201%252F2:.','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3Astop-1:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:stop-1','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3AAv.%2520Per%25C3%25BA%2520%252312:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:Av.%20Per%C3%BA%20%2312','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3Aa%253Db:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:a%3Db','2026-11-18 12:30',NULL);
INSERT INTO visits VALUES('%2525C3%252591u%2525C3%2525B1oa%252520%25257E%252520100%252520%252525%3A.:2026-11-18%2012%3A30','planned',0,'2026-11-18 10:11:25.692559+00:00',0,NULL,NULL,'2026-11-18 10:11:25.692559+00:00','2026-11-18 10:11:25.692559+00:00','%25C3%2591u%25C3%25B1oa%2520%257E%2520100%2520%2525:.','2026-11-18 12:30',NULL);
-- Triggers and indices on  visits
CREATE INDEX "esclusa_visits_status_bec08eb0" ON "visits" ("status", "updated_at");

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
INSERT INTO worker_runs VALUES('post.deliver:20261118T101125.499113Z-vm-13760-00c8','partial',0,'2026-11-18 10:11:25.509524+00:00',0,NULL,NULL,'2026-11-18 10:11:25.499995+00:00','2026-11-18 10:11:25.509524+00:00','post.deliver','20261118T101125.499113Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.499113+00:00','2026-11-18 10:11:25.509371+00:00',10,'{"taken":8,"sent":5,"failed":3}','{"code": "records_exhausted", "state": "failed"}');
INSERT INTO worker_runs VALUES('post.store-away:20261118T101125.511992Z-vm-13760-00c8','ok',0,'2026-11-18 10:11:25.516911+00:00',0,NULL,NULL,'2026-11-18 10:11:25.512297+00:00','2026-11-18 10:11:25.516911+00:00','post.store-away','20261118T101125.511992Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.511992+00:00','2026-11-18 10:11:25.516826+00:00',5,'{"archived":1}',NULL);
INSERT INTO worker_runs VALUES('post.misfire:20261118T101125.518036Z-vm-13760-00c8','error',0,'2026-11-18 10:11:25.591795+00:00',0,NULL,NULL,'2026-11-18 10:11:25.518316+00:00','2026-11-18 10:11:25.591795+00:00','post.misfire','20261118T101125.518036Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.518036+00:00','2026-11-18 10:11:25.591601+00:00',74,'{}','RuntimeError: no fuel');
INSERT INTO worker_runs VALUES('post.deliver:20261118T101125.598496Z-vm-13760-00c8','partial',0,'2026-11-18 10:11:25.603499+00:00',0,NULL,NULL,'2026-11-18 10:11:25.598807+00:00','2026-11-18 10:11:25.603499+00:00','post.deliver','20261118T101125.598496Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.598496+00:00','2026-11-18 10:11:25.603407+00:00',5,'{"taken":1,"failed":1}','{"code": "records_exhausted", "state": "failed"}');
INSERT INTO worker_runs VALUES('post.travel:20261118T101125.698661Z-vm-13760-00c8','partial',0,'2026-11-18 10:11:25.704920+00:00',0,NULL,NULL,'2026-11-18 10:11:25.698920+00:00','2026-11-18 10:11:25.704920+00:00','post.travel','20261118T101125.698661Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.698661+00:00','2026-11-18 10:11:25.704395+00:00',6,'{"taken":12,"sent":9,"failed":3}','{"code": "records_exhausted", "state": "failed"}');
INSERT INTO worker_runs VALUES('post.store-routes:20261118T101125.706877Z-vm-13760-00c8','ok',0,'2026-11-18 10:11:25.712498+00:00',0,NULL,NULL,'2026-11-18 10:11:25.707359+00:00','2026-11-18 10:11:25.712498+00:00','post.store-routes','20261118T101125.706877Z-vm-13760-00c8','vm-13760-00c8','2026-11-18 10:11:25.706877+00:00','2026-11-18 10:11:25.712367+00:00',5,'{}',NULL);
-- Triggers and indices on  worker_runs
CREATE INDEX "esclusa_worker_runs_claim_f7765683" ON "worker_runs" ("due_at", "id") WHERE "status" IN ('running');
CREATE INDEX "esclusa_worker_runs_cycle_started_at_f6ef4fd6" ON "worker_runs" ("cycle", "started_at" DESC);
CREATE INDEX "esclusa_worker_runs_started_at_6d4c5f26" ON "worker_runs" ("started_at" DESC);
CREATE INDEX "esclusa_worker_runs_status_caa233a6" ON "worker_runs" ("status", "updated_at");

COMMIT TRANSACTION;
