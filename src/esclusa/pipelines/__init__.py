"""The pipelines that Esclusa ships: replies, tenders, media and documents."""
