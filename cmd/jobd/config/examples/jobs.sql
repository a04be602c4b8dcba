CREATE TABLE jobs (
  id int(10) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  target char(16) NOT NULL,
  time_created int(10) unsigned NOT NULL,
  time_started int(10) unsigned NOT NULL DEFAULT 0,
  time_finished int(10) unsigned NOT NULL DEFAULT 0,
  status enum('waiting','manual','accepted','running','done','ignored') NOT NULL DEFAULT 'waiting',
  result enum('ok','fail') DEFAULT NULL,
  return_code tinyint(3) unsigned DEFAULT NULL,
  sig char(10) DEFAULT NULL,
  stdout mediumtext DEFAULT NULL,
  stderr mediumtext DEFAULT NULL,
  KEY status_target_idx (status, target, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8;
