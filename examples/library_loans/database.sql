CREATE TABLE books (
  id TEXT PRIMARY KEY NOT NULL,
  title TEXT NOT NULL,
  author TEXT NOT NULL,
  copies INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE cards (id TEXT PRIMARY KEY NOT NULL, branch TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE loans (
  id INTEGER PRIMARY KEY,
  card TEXT NOT NULL REFERENCES cards (id),
  book TEXT NOT NULL REFERENCES books (id),
  due TEXT NOT NULL,
  returned INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO books VALUES
  ('b01', 'Emma', 'Jane Austen', 3),
  ('b02', 'Persuasion', 'Jane Austen', 1),
  ('b03', 'Frankenstein', 'Mary Shelley', 2),
  ('b04', 'Moby-Dick', 'Herman Melville', 2),
  ('b05', 'Middlemarch', 'George Eliot', 1);
INSERT INTO cards VALUES
  ('C-1001', 'harbour'), ('C-1002', 'harbour'), ('C-1003', 'station'),
  ('C-1004', 'station'), ('C-1005', 'harbour');
INSERT INTO loans (card, book, due, returned) VALUES
  ('C-1001', 'b01', '2026-02-27', 0),
  ('C-1001', 'b02', '2026-02-28', 0),
  ('C-1001', 'b04', '2026-03-01', 0),
  ('C-1002', 'b01', '2026-02-20', 1),
  ('C-1002', 'b05', '2026-02-11', 1),
  ('C-1002', 'b03', '2026-02-14', 1),
  ('C-1003', 'b03', '2026-03-14', 0),
  ('C-1004', 'b01', '2026-02-28', 0),
  ('C-1004', 'b04', '2026-03-09', 0);
