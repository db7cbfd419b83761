"""The store: tables, migrations, writes (:mod:`db.repository`) and read models (:mod:`db.queries`)."""
